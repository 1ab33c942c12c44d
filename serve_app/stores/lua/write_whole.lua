-- ARGV: writer, 1 to replace a stored mesh, expiry in ms or '', sequence, revision, first kept snapshot, sequence and
-- revision of the state in full, the state, number of steps, for each its number and content, number of snapshots, for
-- each its number, time, verdict and content, incidents.
local stored = read_position()
if stored.writer == ARGV[1] then
    return {DONE, stored.revision}
end
if stored.revision ~= '0' and ARGV[2] ~= '1' then
    return refuse(stored)
end
redis.call('HSET', POSITION, 'sequence', ARGV[4], 'revision', ARGV[5], 'writer', ARGV[1], 'first', ARGV[6])
for _, key in ipairs(KEYS) do
    if key ~= POSITION then
        redis.call('DEL', key)
    end
end
put_state(ARGV[1], ARGV[8], ARGV[7], ARGV[9])
local at = 10
for _ = 1, tonumber(ARGV[10]) do
    redis.call('HSET', STEPS, ARGV[at + 1], ARGV[at + 2])
    at = at + 2
end
local window = tonumber(ARGV[at + 1])
at = at + 1
for _ = 1, window do
    local number, time, verdict, snapshot = unpack(ARGV, at + 1, at + 4)
    redis.call('ZADD', TIMES, time, number)
    redis.call('HSET', VERDICTS, number, verdict)
    redis.call('HSET', SNAPSHOTS, number, snapshot)
    at = at + 4
end
write_incidents(at + 1)
set_expiry(ARGV[3])
return {DONE, ARGV[5]}

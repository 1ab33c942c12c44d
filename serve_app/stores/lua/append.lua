-- ARGV: writer, sequence, revision or '', snapshots to keep, expiry in ms or '', 1 for a step, state, snapshot, verdict,
-- time in µs, oldest end of incidents in µs or '', bytes of the archive, incidents, history.
local stored = read_position()
if stored.writer == ARGV[1] then -- a repeated request, whose first answer was lost
    return {DONE, stored.revision}
end
local sequence = tonumber(ARGV[2])
if tonumber(stored.sequence) ~= sequence - 1 or (ARGV[3] ~= '' and ARGV[3] ~= stored.revision) then
    return refuse(stored)
end
local revision = next_revision(stored)
-- The first write is one that a full server refuses. After it, Redis refuses no other of the same script.
redis.call('HSET', SNAPSHOTS, ARGV[2], ARGV[8])
redis.call('HSET', VERDICTS, ARGV[2], ARGV[9])
redis.call('ZADD', TIMES, ARGV[10], ARGV[2])
if ARGV[6] == '1' then
    redis.call('HSET', STEPS, ARGV[2], ARGV[7])
else
    put_state(ARGV[1], revision, ARGV[2], ARGV[7])
end
local first, keep = stored.first, tonumber(ARGV[4])
while first <= sequence - keep do
    redis.call('HDEL', SNAPSHOTS, first)
    redis.call('HDEL', VERDICTS, first)
    redis.call('ZREM', TIMES, first)
    first = first + 1
end
redis.call('HSET', POSITION, 'sequence', ARGV[2], 'revision', revision, 'writer', ARGV[1], 'first', first)
local grew = write_incidents(13)
if ARGV[11] ~= '' then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', ENDS, '-inf', '(' .. ARGV[11])) do
        drop_incident(id)
    end
    if grew then
        local sizes, kept, excess = redis.call('HGETALL', SIZES), {}, -tonumber(ARGV[12])
        for i = 1, #sizes, 2 do
            local open, severity, since, bytes = string.match(sizes[i + 1], '^(%d) (%d+) (%-?%d+) (%d+)$')
            excess = excess + bytes
            kept[#kept + 1] = {sizes[i], tonumber(open), tonumber(severity), tonumber(since), tonumber(bytes)}
        end
        if excess > 0 then
            table.sort(kept, function(a, b)
                for i = 2, 4 do
                    if a[i] ~= b[i] then
                        return a[i] < b[i]
                    end
                end
                return a[1] < b[1]
            end)
            for _, one in ipairs(kept) do
                if excess <= 0 then
                    break
                end
                drop_incident(one[1])
                excess = excess - one[5]
            end
        end
    end
end
write_history(14 + 6 * tonumber(ARGV[13]))
set_expiry(ARGV[5])
return {DONE, revision}

-- ARGV: writer, revision, expiry in ms or '', state, incidents.
local stored = read_position()
if stored.writer == ARGV[1] then
    return {DONE, stored.revision}
end
if stored.revision ~= ARGV[2] then
    return refuse(stored)
end
local revision = next_revision(stored)
put_state(ARGV[1], revision, stored.sequence, ARGV[4])
redis.call('HSET', POSITION, 'sequence', stored.sequence, 'revision', revision, 'writer', ARGV[1], 'first', stored.first)
write_incidents(5)
set_expiry(ARGV[3])
return {DONE, revision}

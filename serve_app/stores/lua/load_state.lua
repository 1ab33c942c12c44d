-- Returns sequence, revision, the fields of the state in full, and the steps by number; nothing if the mesh is not
-- stored.
local stored = read_position()
if stored.revision == '0' then
    return {}
end
local state = redis.call('HMGET', STATE, 'revision', 'sequence', 'writer', 'state')
return {stored.sequence, stored.revision, state, redis.call('HGETALL', STEPS)}

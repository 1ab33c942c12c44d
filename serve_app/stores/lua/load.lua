-- Returns sequence, revision and newest verdict; nothing if the mesh is not stored.
local stored = read_position()
if stored.revision == '0' then
    return {}
end
return {stored.sequence, stored.revision, redis.call('HGET', VERDICTS, stored.sequence) or ''}

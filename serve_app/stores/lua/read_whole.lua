-- Returns what load_state returns, then snapshots, verdicts, rows of incidents and their details by key.
local stored = read_position()
if stored.revision == '0' then
    return {}
end
local state = redis.call('HMGET', STATE, 'revision', 'sequence', 'writer', 'state')
local found = {stored.sequence, stored.revision, state}
for _, key in ipairs({STEPS, SNAPSHOTS, VERDICTS, INCIDENTS, DETAILS}) do
    found[#found + 1] = redis.call('HGETALL', key)
end
return found

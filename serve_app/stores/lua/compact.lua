-- ARGV: writer, sequence, revision, revision of the state that is replaced, state.
local stored = redis.call('HMGET', STATE, 'revision', 'writer')
if stored[2] == ARGV[1] then
    return DONE
end
if stored[1] ~= ARGV[4] then
    return REFUSED
end
redis.call('HSET', STATE, 'revision', ARGV[3], 'sequence', ARGV[2], 'writer', ARGV[1], 'state', ARGV[5])
for _, number in ipairs(redis.call('HKEYS', STEPS)) do
    if tonumber(number) <= tonumber(ARGV[2]) then
        redis.call('HDEL', STEPS, number)
    end
end
return DONE

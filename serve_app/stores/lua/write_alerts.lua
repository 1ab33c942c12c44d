-- KEYS: the state of notifications. ARGV: its writer, field, value. Returns 1; 0: it has another writer; -1: it has none.
local writer = redis.call('HGET', KEYS[1], 'writer')
if writer ~= ARGV[1] then
    return writer and 0 or -1
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
return 1

-- KEYS: id of the store, its meshes. ARGV: mesh, writer, most meshes or '', expected id. Returns 1; 0 if there is no
-- room; -1 if this is another store.
if redis.call('GET', KEYS[1]) ~= ARGV[4] then
    return -1
end
local now = redis.call('TIME')
local is_new = redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0
if is_new and ARGV[3] ~= '' and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then
    return 0
end
redis.call('HSET', KEYS[2], ARGV[1], now[1] .. ' ' .. ARGV[2])
return 1

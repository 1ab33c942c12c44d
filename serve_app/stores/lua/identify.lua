-- KEYS: id of the store, its meshes. ARGV: an id for a store that has none, or ''. Returns the id, or ''.
local found = redis.call('GET', KEYS[1])
if not found and ARGV[1] ~= '' then
    redis.call('SET', KEYS[1], ARGV[1])
    found = ARGV[1]
end
return found or ''

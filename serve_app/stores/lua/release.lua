-- KEYS: id of the store, its meshes. ARGV: mesh, its entry. A mesh that was created again has another entry.
if redis.call('HGET', KEYS[2], ARGV[1]) == ARGV[2] then
    redis.call('HDEL', KEYS[2], ARGV[1])
end
return 1

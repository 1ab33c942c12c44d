-- ARGV: writer, revision or ''. The archive and what was set aside are deleted too.
local stored = read_position()
if stored.revision == '0' and redis.call('HGET', LAST, 'writer') == ARGV[1] then -- a repeated request
    return DONE
end
if ARGV[2] ~= '' and stored.revision ~= ARGV[2] then
    return REFUSED
end
for _, key in ipairs(KEYS) do
    if key ~= LAST then
        redis.call('DEL', key)
    end
end
if stored.revision == '0' then
    return REFUSED
end
remember_deletion(ARGV[1], stored.revision)
return DONE

-- KEYS: a document. ARGV: writer, revision, content or ''. Returns {1, new revision}, or {0, stored revision}.
local stored = redis.call('HMGET', KEYS[1], 'revision', 'writer')
if stored[2] == ARGV[1] then
    return {1, stored[1]}
end
if (stored[1] or '0') ~= ARGV[2] then
    return {0, stored[1] or '0'}
end
local now = redis.call('TIME')
local revision = string.format('%.0f', math.max(tonumber(ARGV[2]) + 1, now[1] * 1000000 + now[2]))
if ARGV[3] == '' then
    redis.call('DEL', KEYS[1])
else
    redis.call('HSET', KEYS[1], 'revision', revision, 'writer', ARGV[1], 'content', ARGV[3])
end
return {1, revision}

-- ARGV: writer, revision, why.
local stored = read_position()
if stored.revision ~= ARGV[2] then
    return redis.call('HGET', LAST, 'writer') == ARGV[1] and DONE or REFUSED
end
redis.call('DEL', ASIDE, ASIDE_SNAPSHOTS, ASIDE_VERDICTS)
for _, pair in ipairs({{STATE, ASIDE}, {SNAPSHOTS, ASIDE_SNAPSHOTS}, {VERDICTS, ASIDE_VERDICTS}}) do
    if redis.call('EXISTS', pair[1]) == 1 then
        redis.call('RENAME', pair[1], pair[2])
    end
end
redis.call('HSET', ASIDE, 'why', ARGV[3])
redis.call('DEL', POSITION, STEPS, TIMES)
remember_deletion(ARGV[1], stored.revision)
return DONE

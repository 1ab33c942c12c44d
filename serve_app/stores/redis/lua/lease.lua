-- KEYS: a lease. ARGV: a process, its note, ms. Takes the lease if it is free, or extends it with the new note; ends it
-- after 0 ms. Returns false; if another process has it: that process and its note, divided by a line break.
local own = ARGV[1] .. '\n'
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #own) ~= own then
    return value
end
if ARGV[3] == '0' then
    redis.call('DEL', KEYS[1])
else
    redis.call('SET', KEYS[1], own .. ARGV[2], 'PX', ARGV[3])
end
return false

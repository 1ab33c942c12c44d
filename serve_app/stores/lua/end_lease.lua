-- KEYS: a lease. ARGV: a process. Ends the lease if this process has it.
local own = ARGV[1] .. '\n'
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #own) == own then
    redis.call('DEL', KEYS[1])
end
return false

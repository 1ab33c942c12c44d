-- ARGV: from this time on (a bound of ZRANGEBYSCORE), to this one, at most so many or -1. Returns their numbers and
-- rows, oldest first.
local numbers = redis.call('ZRANGEBYSCORE', TIMES, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
table.sort(numbers, function(a, b) return tonumber(a) < tonumber(b) end)
local found = {}
for i, number in ipairs(numbers) do
    found[2 * i - 1], found[2 * i] = number, redis.call('HGET', VERDICTS, number) or ''
end
return found

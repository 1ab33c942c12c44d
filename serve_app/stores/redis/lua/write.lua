-- KEYS: the rows of a space (a hash), and their keys in order (a sorted set). ARGV: 1 if it frees space; then four lists,
-- each after the number of its texts: expected rows (key, '' or 1 for a row that exists, how it begins), keys and prefixes
-- to be deleted, rows to be written (key, value), prefixes to be trimmed (prefix, number). Returns 1; 0 if a row is not as
-- expected.
local ROWS, KEYS_IN_ORDER = KEYS[1], KEYS[2]
local lists, at = {}, 2
for i = 1, 4 do
    lists[i] = {first = at + 1, last = at + tonumber(ARGV[at])}
    at = lists[i].last + 1
end
local expects, drops, puts, trims = lists[1], lists[2], lists[3], lists[4]

for i = expects.first, expects.last, 3 do
    local value = redis.call('HGET', ROWS, ARGV[i])
    local begin = ARGV[i + 2]
    if (value and '1' or '') ~= ARGV[i + 1] or (value and string.sub(value, 1, #begin) ~= begin) then
        -- A repeated change, whose first answer was lost, finds its first row.
        local is_done = puts.first < puts.last and redis.call('HGET', ROWS, ARGV[puts.first]) == ARGV[puts.first + 1]
        return is_done and 1 or 0
    end
end
local function past(prefix) -- what comes after all keys with a prefix, which ends with a slash
    return '(' .. string.sub(prefix, 1, -2) .. '0'
end

local function put(i)
    redis.call('HSET', ROWS, ARGV[i], ARGV[i + 1])
    redis.call('ZADD', KEYS_IN_ORDER, 0, ARGV[i])
end

local function drop(key)
    redis.call('HDEL', ROWS, key)
    redis.call('ZREM', KEYS_IN_ORDER, key)
end

-- The first write is one that a full server refuses, unless the change frees space. After it, Redis refuses no other of
-- the same script.
if ARGV[1] ~= '1' and puts.first < puts.last then
    put(puts.first)
end
for i = drops.first, drops.last do
    local key = ARGV[i]
    if key == '' then
        redis.call('UNLINK', ROWS, KEYS_IN_ORDER)
    elseif string.sub(key, -1) == '/' then
        for _, one in ipairs(redis.call('ZRANGEBYLEX', KEYS_IN_ORDER, '[' .. key, past(key))) do
            drop(one)
        end
    else
        drop(key)
    end
end
for i = puts.first, puts.last, 2 do
    put(i)
end
for i = trims.first, trims.last, 2 do
    local begin, last = '[' .. ARGV[i], past(ARGV[i])
    local excess = redis.call('ZLEXCOUNT', KEYS_IN_ORDER, begin, last) - tonumber(ARGV[i + 1])
    if excess > 0 then
        for _, one in ipairs(redis.call('ZRANGEBYLEX', KEYS_IN_ORDER, begin, last, 'LIMIT', 0, excess)) do
            drop(one)
        end
    end
end
return 1

-- KEYS: the rows of a space (a hash), and their keys in order (a sorted set). ARGV: for each range its first key, the key
-- after its last or '' (only the first), its limit or -1, and 1 for the last ones first. Returns whether the space is a
-- mesh, then for each range a list of keys and values.
local found = {redis.call('HEXISTS', KEYS[1], 'head')}
for at = 1, #ARGV, 4 do
    local begin, last, limit, reverse = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local keys = {begin}
    if last ~= '' and reverse == '1' then
        keys = redis.call('ZREVRANGEBYLEX', KEYS[2], '(' .. last, '[' .. begin, 'LIMIT', 0, limit)
    elseif last ~= '' then
        keys = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. begin, '(' .. last, 'LIMIT', 0, limit)
    end
    local rows = {}
    for _, key in ipairs(keys) do
        local value = redis.call('HGET', KEYS[1], key)
        if value then
            rows[#rows + 1] = key
            rows[#rows + 1] = value
        end
    end
    found[#found + 1] = rows
end
return found

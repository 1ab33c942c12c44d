-- The keys of a mesh, and what several scripts do with them. Every script gets the same keys, in the order of
-- redis_store.py. Numbers arrive and leave as text. A number of Lua has 53 bits: enough for µs up to the year 2255.
local POSITION, STATE, STEPS, SNAPSHOTS, VERDICTS, TIMES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local INCIDENTS, DETAILS, OPEN, ENDS, SIZES = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local LAST, ASIDE, ASIDE_SNAPSHOTS, ASIDE_VERDICTS = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local HISTORY, HISTORY_SIZES = KEYS[16], KEYS[17]
local DAY_MS = 86400000
local DONE, REFUSED = 1, 0

local function read_position()
    local found = redis.call('HMGET', POSITION, 'sequence', 'revision', 'writer', 'first')
    return {sequence = found[1] or '0', revision = found[2] or '0', writer = found[3], first = tonumber(found[4] or 1)}
end

local function refuse(stored)
    return {REFUSED, stored.sequence, stored.revision}
end

local function next_revision(stored)
    local last = stored.revision
    if last == '0' then
        last = redis.call('HGET', LAST, 'revision') or '0'
    end
    local now = redis.call('TIME')
    return string.format('%.0f', math.max(tonumber(last) + 1, now[1] * 1000000 + now[2]))
end

local function put_state(writer, revision, sequence, state)
    redis.call('HSET', STATE, 'revision', revision, 'sequence', sequence, 'writer', writer, 'state', state)
    redis.call('DEL', STEPS)
end

-- Incidents from this argument on: their number, then for each its id, row, details, sequence if it is open, end, and
-- the text by which the archive is thinned out.
local function write_incidents(at)
    local count = tonumber(ARGV[at])
    for i = 0, count - 1 do
        local id, row, details, sequence, ended, size = unpack(ARGV, at + 1 + 6 * i, at + 6 + 6 * i)
        redis.call('HSET', INCIDENTS, id, row)
        redis.call('HSET', DETAILS, id, details)
        redis.call('HSET', SIZES, id, size)
        if ended == '' then
            redis.call('HSET', OPEN, id, sequence)
            redis.call('ZREM', ENDS, id)
        else
            redis.call('HDEL', OPEN, id)
            redis.call('ZADD', ENDS, ended, id)
        end
    end
    return count > 0
end

local function drop_incident(id)
    for _, key in ipairs({INCIDENTS, DETAILS, OPEN, SIZES}) do
        redis.call('HDEL', key, id)
    end
    redis.call('ZREM', ENDS, id)
end

-- Chunks of the history from this argument on: their number, then for each its key, content and size; then the number
-- of those to delete, and their keys.
local function write_history(at)
    local written = tonumber(ARGV[at])
    for i = 0, written - 1 do
        local key, content, size = unpack(ARGV, at + 1 + 3 * i, at + 3 + 3 * i)
        redis.call('HSET', HISTORY, key, content)
        redis.call('HSET', HISTORY_SIZES, key, size)
    end
    local dropped = at + 1 + 3 * written
    for i = dropped + 1, dropped + tonumber(ARGV[dropped]) do
        redis.call('HDEL', HISTORY, ARGV[i])
        redis.call('HDEL', HISTORY_SIZES, ARGV[i])
    end
end

-- Every write sets the time at which an idle mesh expires; without one, it removes the time of an earlier setting.
local function set_expiry(milliseconds)
    if milliseconds == '' and redis.call('PTTL', POSITION) < 0 then
        return
    end
    for i, key in ipairs(KEYS) do
        if i <= 11 or i >= 16 then -- not of what was set aside
            if milliseconds == '' then
                redis.call('PERSIST', key)
            else
                redis.call('PEXPIRE', key, milliseconds)
            end
        end
    end
end

-- For a day, to answer a repeated request alike, and to repeat no revision.
local function remember_deletion(writer, revision)
    redis.call('HSET', LAST, 'writer', writer, 'revision', revision)
    redis.call('PEXPIRE', LAST, DAY_MS)
end

-- KEYS: the state of notifications. ARGV: a writer. Makes it the only writer. Returns the value, or ''.
redis.call('HSET', KEYS[1], 'writer', ARGV[1])
return redis.call('HGET', KEYS[1], 'value') or ''

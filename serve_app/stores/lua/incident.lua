-- ARGV: id. Returns its row and its details.
return {redis.call('HGET', INCIDENTS, ARGV[1]), redis.call('HGET', DETAILS, ARGV[1])}

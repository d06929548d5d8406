-- Drop a session under the previous STATE_SECRET's key once it was adopted.
-- KEYS: session, index
-- ARGV: member
-- RETURNS: 1 when it was there, else 0
-- WHY LUA: value and index together, in one trip.

typed(redis.pcall('ZREM', KEYS[2], ARGV[1]))
return redis.call('DEL', KEYS[1])

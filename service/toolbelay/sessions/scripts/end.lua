-- Forget a session and leave a tombstone, so that a turn that opened before cannot bring it back.
-- KEYS: session, index
-- ARGV: member, tombstone (8 random bytes)
-- RETURNS: 1 when a session was there, else 0
-- WHY LUA: the tombstone's life, the index and what was there belong to one step.

local kind = read(KEYS[1])
redis.call('SET', KEYS[1], 'TX' .. char(VERSION) .. ARGV[2], 'PX', TOMBSTONE_MS)
typed(redis.pcall('ZREM', KEYS[2], ARGV[1]))
return kind == 'P' and 1 or 0

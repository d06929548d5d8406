-- Prove that scripts run and write here.
-- KEYS: probe
-- ARGV: ttl_ms
-- RETURNS: 1
-- WHY LUA: so that a server or an ACL that refuses scripts or writes is found before a session needs them.

redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 1

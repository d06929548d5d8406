-- Put an envelope found under the previous STATE_SECRET's key under the present one, unless something is there.
-- KEYS: session, index
-- ARGV: member, envelope, ttl_ms, quota
-- RETURNS: 1 when adopted, else 0
-- WHY LUA: the check, the quota, the value and the index are one step.

if read(KEYS[1]) ~= 'A' then return 0 end
make_room(KEYS[2], ARGV[1], tonumber(ARGV[4]))
redis.call('SET', KEYS[1], ARGV[2], 'PX', tonumber(ARGV[3]))
enroll(KEYS[2], ARGV[1], now_ms(), tonumber(ARGV[3]))
return 1

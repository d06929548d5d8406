-- Forget every session of a principal, and mark the index so that turns that opened before cannot save.
-- KEYS: index
-- ARGV: (none)
-- RETURNS: sessions that were there
-- WHY LUA: the members of the index are known only here, and none may be missed or added in between.

local ended, members = 0, typed(redis.pcall('ZRANGE', KEYS[1], 0, -1)) or {}
for _, member in ipairs(members) do
  if member ~= END then ended = ended + redis.call('DEL', key_of(KEYS[1], member)) end
end
local time = redis.call('TIME')
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[1], string.format('%d%06d', time[1], time[2]), END)
redis.call('PEXPIRE', KEYS[1], TOMBSTONE_MS)
return ended

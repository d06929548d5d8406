-- Set a tenant's generation if it is greater, and renew its life either way.
-- KEYS: generation
-- ARGV: generation, ttl_ms
-- RETURNS: the stored generation
-- WHY LUA: set-if-greater must be one step, or a late raise takes a newer one back.

local stored = typed(redis.pcall('GET', KEYS[1]))
local number = stored and string.match(stored, '^%d+$') and tonumber(stored)
if number and number < EXACT and number >= tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return number
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return tonumber(ARGV[1])

-- Read a session and change nothing.
-- KEYS: session, index
-- ARGV: epoch
-- RETURNS: token, envelope (nil unless present), now_ms, ttl_ms (negative = none)
-- WHY LUA: only the server tells a bounded read, the value's kind and its remaining life in one trip.

local kind, raw, h = read(KEYS[1])
local token = token_of(kind, raw) .. end_mark(KEYS[2])
if kind ~= 'P' or h.epoch < tonumber(ARGV[1]) then raw = false end
return {token, raw, now_ms(), redis.call('PTTL', KEYS[1])}

-- Add tools to a session without compare-and-set: they wait in the envelope until the next reader folds them in.
-- KEYS: session, index
-- ARGV: member, ttl_ms, entry...
-- RETURNS: entries refused because the bound on waiting ones was reached (-1 = no session, nothing done)
-- WHY LUA: appending inside one value and raising its revision must be one step.

local member, ttl_ms = ARGV[1], tonumber(ARGV[2])
local kind, raw, h = read(KEYS[1])
if kind ~= 'P' then return -1 end

local pending, entries, refused = sub(raw, h.keys_end + 1, h.pending_end), h.entries, 0
for i = 3, #ARGV do
  if not string.find(pending, ARGV[i], 1, true) then
    if entries >= MAX_ENTRIES or #pending + #ARGV[i] > MAX_PENDING then
      refused = refused + 1
    else
      pending, entries = pending .. ARGV[i], entries + 1
    end
  end
end
if entries == h.entries then return refused end

local now = now_ms()
raw = sub(raw, 1, 16) .. pack('<I8', h.revision + 1) .. sub(raw, 25, 48) .. pack('<I8', now) .. sub(raw, 57, 72)
  .. pack('<I4I4', #pending, entries) .. sub(raw, 81, h.keys_end) .. pending .. sub(raw, h.pending_end + 1)
redis.call('SET', KEYS[1], raw, 'PX', ttl_ms)
enroll(KEYS[2], member, now, ttl_ms)
return refused

-- Read a session for a turn and renew it; note the turn's key and give the turn its number.
-- KEYS: session, index
-- ARGV: member, epoch, ttl_ms, counts (1 = a turn, 0 = only renew), turn (a reload's own number, else 0), identity, content
-- RETURNS: token, envelope (nil unless present), turn, replayed, spent, reused, idle_ms (-1 = unknown), now_ms
-- WHY LUA: reading, numbering and renewing must be one step, or two turns at once share a number; and one round trip.

local member, epoch, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local kind, raw, h = read(KEYS[1])
local now = now_ms()
local token = token_of(kind, raw) .. end_mark(KEYS[2])

if kind == 'D' then redis.call('PEXPIRE', KEYS[1], ttl_ms) end -- damage must not stay for ever
if kind ~= 'P' or h.epoch < epoch then return {token, false, 1, 0, 0, 0, -1, now} end

local turn, replayed, spent, reused = h.turn, 0, 0, 0
local keys, count = sub(raw, h.start + 1, h.keys_end), h.count
local newest, last_turn, idle = h.turn, h.last_turn, now - h.last_turn

if ARGV[4] == '1' then
  -- Number 1 is always provisional: the session was absent when it was given, so nothing was recorded.
  local given, identity, content = tonumber(ARGV[5]), ARGV[6], ARGV[7]
  local reload = given > 1 and given <= h.turn
  local at
  if identity ~= '' then at, reused = find_key(keys, h, identity, content) end
  if at then
    turn, spent = unpack_from('<I4I2', keys, at + 25)
    replayed = reload and 0 or 1
  else
    turn = reload and given or h.turn + 1
    newest = math.max(newest, turn)
    if identity ~= '' then
      keys, count = record_key(keys, count, h.key_bytes, identity, content, turn, 0)
    end
  end
  if not reload then last_turn = now end
end

raw = sub(raw, 1, 6) .. char(count) .. sub(raw, 8, 32) .. pack('<I8', newest) .. sub(raw, 41, 48)
  .. pack('<I8I8', now, last_turn) .. sub(raw, 65, h.start) .. keys .. sub(raw, h.keys_end + 1)
redis.call('SET', KEYS[1], raw, 'PX', ttl_ms)
enroll(KEYS[2], member, now, ttl_ms)
return {token, raw, turn, replayed, spent, reused, idle, now}

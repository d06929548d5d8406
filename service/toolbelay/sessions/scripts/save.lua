-- Write a session's state if it still is as the turn found it; create it when the turn found none.
-- KEYS: session, index
-- ARGV: member, token, creates (1 or 0), epoch, ttl_ms, tail, incarnation (8 random bytes where it creates), turn, identity, content, spent, quota
-- RETURNS: status (saved, conflict or ended), revision, evicted (sessions that the quota cost)
-- WHY LUA: compare-and-set with a merge of what others noted in the header meanwhile (turn, keys), and the quota.

local member, token, creates = ARGV[1], ARGV[2], ARGV[3] == '1'
local epoch, ttl_ms, tail = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local turn, identity, content, spent = tonumber(ARGV[8]), ARGV[9], ARGV[10], tonumber(ARGV[11])

local expected = sub(token, 1, 1)
local length = ({P = 16, T = 8})[expected] or 0
local body, mark_seen = sub(token, 2, 1 + length), sub(token, 2 + length)

local kind, raw, h = read(KEYS[1])
local mark = end_mark(KEYS[2])
if mark ~= '' and mark ~= mark_seen then return {'ended', 0, 0} end

local unchanged = token_of(kind, raw) == expected .. body
local lapsed = kind == 'A' and expected == 'T'
if not (unchanged or lapsed) then
  if kind == 'T' then return {'ended', 0, 0} end
  if kind == 'P' then
    -- A session born over a tombstone that this turn had not seen: it was ended, then begun anew, since the turn opened.
    local born_over = sub(raw, 65, 72)
    local same_session = expected == 'P' and sub(raw, 9, 16) == sub(body, 1, 8)
    local same_tombstone = expected == 'T' and born_over == body
    if born_over ~= NOBODY and not same_session and not same_tombstone then return {'ended', 0, 0} end
  end
  return {'conflict', 0, 0}
end
if not creates and h.epoch < epoch then return {'ended', 0, 0} end

local now, revision, evicted = now_ms(), 1, 0
if creates then
  local keys, count = '', 0
  if identity ~= '' then keys, count = record_key('', 0, KEY_BYTES, identity, content, turn, spent) end
  evicted = make_room(KEYS[2], member, tonumber(ARGV[12]))
  raw = 'TB' .. char(VERSION, KEY_BYTES) .. pack('<I2', FIXED) .. char(count, 0) .. ARGV[7]
    .. pack('<I8I8I8I8I8I8', revision, epoch, turn, now, now, now)
    .. (kind == 'T' and body or NOBODY) .. pack('<I4I4', 0, 0) .. keys .. tail
else
  local keys, count = sub(raw, h.start + 1, h.keys_end), h.count
  if identity ~= '' then
    local at = find_key(keys, h, identity, content)
    if at then
      local before = unpack_from('<I2', keys, at + 29)
      keys = sub(keys, 1, at + 28) .. pack('<I2', math.max(before, spent)) .. sub(keys, at + 31)
    else
      keys, count = record_key(keys, count, h.key_bytes, identity, content, turn, spent)
    end
  end
  revision = h.revision + 1
  raw = sub(raw, 1, 6) .. char(count) .. sub(raw, 8, 16)
    .. pack('<I8I8I8', revision, math.max(h.epoch, epoch), math.max(h.turn, turn)) .. sub(raw, 41, 48)
    .. pack('<I8', now) .. sub(raw, 57, 72) .. pack('<I4I4', 0, 0) .. sub(raw, 81, h.start) .. keys .. tail
end
redis.call('SET', KEYS[1], raw, 'PX', ttl_ms)
enroll(KEYS[2], member, now, ttl_ms)
return {'saved', revision, evicted}

-- Put before every script of this directory at load; has no keys or arguments of its own.
-- The only place that knows the envelope's header (layout: envelope.py, docs/compatibility.md). Offsets below are
-- Lua's, counted from 1. Integers are little-endian; all stay below 2^53, where Lua's numbers are exact.
--
-- A session's key holds one of: an envelope (magic TB), a tombstone (magic TX), or something damaged or foreign.

local VERSION = 1            -- newest envelope that this build reads, and the one it writes
local FIXED = 80             -- header bytes that this build knows; a newer build may add some behind them
local KEY_BYTES = 30         -- a turn key: 8 identity, 16 content, 4 turn, 2 spent
local KEYS_KEPT = 8
local MAX_BYTES = 65536
local MAX_PENDING = 12288
local MAX_ENTRIES = 256
local EXACT = 9007199254740991
local TOMBSTONE_MS = 60000
local NOBODY = string.rep('\0', 8)
local END = 'end'            -- the index's member that tells when the whole principal was ended

local sub, byte, char = string.sub, string.byte, string.char
local pack, unpack_from = struct.pack, struct.unpack

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A wrong type is damage and gives nil; any other error is the server's and ends the script.
local function typed(reply)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return nil end
  error(reply)
end

-- What is under a session's key: 'P' envelope (with its bytes and header), 'A' nothing, 'T' tombstone (with its
-- bytes), 'D' damaged. Reads at most one byte over the bound, however large the value is.
local function read(key)
  local raw = typed(redis.pcall('GETRANGE', key, 0, MAX_BYTES))
  if not raw then return 'D' end
  if raw == '' then return redis.call('EXISTS', key) == 0 and 'A' or 'D' end
  local magic, version = sub(raw, 1, 2), byte(raw, 3)
  if magic == 'TX' and #raw == 11 then return 'T', raw end
  if magic ~= 'TB' or #raw < FIXED or #raw > MAX_BYTES or version < 1 or version > VERSION then return 'D' end
  local h = {}
  h.key_bytes, h.start, h.count = unpack_from('<BI2B', raw, 4)
  h.revision, h.epoch, h.turn, h.created, h.seen, h.last_turn = unpack_from('<I8I8I8I8I8I8', raw, 17)
  h.pending, h.entries = unpack_from('<I4I4', raw, 73)
  h.keys_end = h.start + h.count * h.key_bytes
  h.pending_end = h.keys_end + h.pending
  if h.start < FIXED or h.key_bytes < KEY_BYTES or h.pending_end > #raw then return 'D' end
  if math.max(h.revision, h.epoch, h.turn, h.seen, h.last_turn) >= EXACT then return 'D' end
  return 'P', raw, h
end

-- The compare-and-set token of what `read` found: incarnation and revision, or the tombstone's id.
local function token_of(kind, raw)
  if kind == 'P' then return 'P' .. sub(raw, 9, 24) end
  if kind == 'T' then return 'T' .. sub(raw, 4, 11) end
  return kind
end

-- When the principal was last ended ('' = not lately), as text; goes into every token.
local function end_mark(index)
  return typed(redis.pcall('ZSCORE', index, END)) or ''
end

-- Note the session as just seen; the index lives as long as its longest member.
local function enroll(index, member, now, ttl_ms)
  if not typed(redis.pcall('ZADD', index, now, member)) then
    redis.call('DEL', index)
    redis.call('ZADD', index, now, member)
  end
  if redis.call('PTTL', index) < ttl_ms then redis.call('PEXPIRE', index, ttl_ms) end
end

-- The key of another session of the same principal: 'tb:{P}:idx' gives 'tb:{P}:s:<member>'. Its name comes from the
-- index; the hash tag keeps it in the slot of the declared keys.
local function key_of(index, member)
  return sub(index, 1, -4) .. 's:' .. member
end

-- Make room for one more session: expired members leave the index, then the least recently used sessions go.
local function make_room(index, member, quota)
  local size = typed(redis.pcall('ZCARD', index)) or 0
  if size < quota then return 0 end
  local living, evicted = {}, 0
  for _, other in ipairs(redis.call('ZRANGE', index, 0, -1)) do
    if other ~= END and other ~= member then
      if redis.call('EXISTS', key_of(index, other)) == 1 then
        living[#living + 1] = other
      else
        redis.call('ZREM', index, other)
      end
    end
  end
  for i = 1, #living - quota + 1 do
    redis.call('DEL', key_of(index, living[i]))
    redis.call('ZREM', index, living[i])
    evicted = evicted + 1
  end
  return evicted
end

-- Where a turn key stands among the recorded ones (offset before its first byte, or nil), and whether its identity
-- came with other content.
local function find_key(keys, h, identity, content)
  local reused = 0
  for i = h.count - 1, 0, -1 do
    local at = i * h.key_bytes
    if sub(keys, at + 1, at + 8) == identity then
      if sub(keys, at + 9, at + 24) == content then return at, 0 end
      reused = 1
    end
  end
  return nil, reused
end

-- Append a turn key; the oldest go when there are too many. Returns the keys and their count.
local function record_key(keys, count, key_bytes, identity, content, turn, spent)
  local entry = identity .. content .. pack('<I4I2', turn, spent) .. string.rep('\0', key_bytes - KEY_BYTES)
  local surplus = count - (KEYS_KEPT - 1)
  if surplus > 0 then
    keys, count = sub(keys, surplus * key_bytes + 1), count - surplus
  end
  return keys .. entry, count + 1
end

#!lua flags=allow-oom
-- room_approval: keeps the actions in a room that one person has asked for and another has to confirm.
-- KEYS: approvals, audit
-- ARGV: now, do (ask, take or withdraw), id, room, action, who, person, lasts (seconds), record
-- RETURNS: {code, record}
-- REPLY ASKED: 'A'  recorded under the id
-- REPLY CROWDED: 'F'  too many actions wait for a confirmation
-- REPLY TAKEN: 'T'  the action is no longer recorded, and the caller does it now
-- REPLY SAME: 'S'  the person has asked for it
-- REPLY WITHDRAWN: 'W'  the action is no longer recorded
-- REPLY GONE: 'G'  there is no such action, or its time has passed
-- INVARIANT: an action is taken at most once, in its time, and never by the person who asked for it.
-- INCLUDE: clock, audit

local MOST = 100
local now = math.floor(clock_now(ARGV[1]) / 1000000)
local function note(what, action, who) append_audit(KEYS[2], int(now), who, ARGV[4], what .. action, { { 'approval', nil, ARGV[3] } }) end

-- A field's value is end, person, action and record, each after its length.
local function read(value)
  local parts, from = {}, 1
  while from <= #value do
    local colon = value:find(':', from, true)
    local size = tonumber(value:sub(from, colon - 1))
    parts[#parts + 1] = value:sub(colon + 1, colon + size)
    from = colon + size + 1
  end
  return tonumber(parts[1]), parts[2], parts[3], parts[4]
end

local all = redis.call('HGETALL', KEYS[1])
local count = 0
for i = 1, #all, 2 do
  if read(all[i + 1]) <= now then redis.call('HDEL', KEYS[1], all[i]) else count = count + 1 end
end
if ARGV[2] == 'ask' then
  if count >= MOST then return { REPLY_CROWDED, '' } end
  local ends = now + tonumber(ARGV[8])
  redis.call('HSET', KEYS[1], ARGV[3], netstrings({ int(ends), ARGV[7], ARGV[5], ARGV[9] }, 4))
  redis.call('EXPIREAT', KEYS[1], int(ends + 60))
  note('ask_', ARGV[5], ARGV[6])
  return { REPLY_ASKED, ARGV[9] }
end
local value = redis.call('HGET', KEYS[1], ARGV[3])
if not value then return { REPLY_GONE, '' } end
local _, person, action, record = read(value)
if ARGV[2] == 'take' and person == ARGV[7] then return { REPLY_SAME, record } end
redis.call('HDEL', KEYS[1], ARGV[3])
if ARGV[2] == 'take' then
  note('confirm_', action, ARGV[6])
  return { REPLY_TAKEN, record }
end
note('withdraw_', action, ARGV[6])
return { REPLY_WITHDRAWN, record }

-- presence: who is in line, and when they were heard of.

-- Presence is kept beside the line in bags, one for each of 2^17 beginnings of an
-- id (ids are 16 bytes): a record of 21 bytes in place of a member of a second
-- sorted set, which would take 118. A record is the rest of the id, and 7 bytes
-- with the millisecond in which the ticket was heard, times 256, plus the seconds
-- for which it then counts as present.
local RECORD, REST = 21, 14

local function bag_of(id)
  return string.sub(id, 1, 2) .. (string.byte(id, 3) < 128 and '0' or '1'), string.sub(id, 3)
end

-- record finds where the record of an id begins in its bag.
local function record(bag, rest)
  local at = 0
  repeat
    at = string.find(bag, rest, at + 1, true)
  until not at or at % RECORD == 1
  return at
end

-- unrecord drops an id from its bag.
local function unrecord(id)
  local field, rest = bag_of(id)
  local bag = redis.call('HGET', SEEN, field)
  local at = bag and record(bag, rest)
  if not at then return end
  if #bag == RECORD then
    redis.call('HDEL', SEEN, field)
  else
    redis.call('HSET', SEEN, field, string.sub(bag, 1, at - 1) .. string.sub(bag, at + RECORD))
  end
end

-- read_record gives the millisecond in which a ticket was heard, and the seconds
-- for which that counts; 0, 0 where nothing is known.
local function read_record(bag, rest)
  local at = bag and record(bag, rest)
  if not at then return 0, 0 end
  local score = struct.unpack('>I7', bag, at + REST)
  return math.floor(score / 256), score % 256
end

local function last_heard(id)
  local field, rest = bag_of(id)
  return read_record(redis.call('HGET', SEEN, field), rest)
end

-- absent tells whether a ticket that was heard of in that millisecond is given up.
local function absent(s, p, ms) return ms < math.floor((s.now - p.absence) / 1000) - 1000 end

-- keep writes that a waiting ticket was heard of now. bag is what its field holds.
local function keep(s, field, rest, bag, grace)
  local new = rest .. struct.pack('>I7', math.floor(s.now / 1000) * 256 + math.min(255, grace))
  local at = bag and record(bag, rest)
  if at then
    new = string.sub(bag, 1, at - 1) .. new .. string.sub(bag, at + RECORD)
  elseif bag then
    new = bag .. new
  end
  redis.call('HSET', SEEN, field, new)
end

local function out_of_line(id)
  local n = redis.call('ZREM', LINE, id) + redis.call('ZREM', PARKED, id)
  unrecord(id)
  return n
end

-- reap gives up a ticket that was not heard of for absence.
local function reap(s, id)
  out_of_line(id)
  s.abandons = s.abandons + 1
  count_minute(s, 'x', 1)
end

-- neighbours gives up those whose records follow one's own in its bag and who were
-- absent. So the living, each heard of every quarter of absence, find most of the dead.
local function neighbours(s, p, field, rest, bag)
  local n = #bag / RECORD
  if n < 2 then return end
  local at = record(bag, rest)
  if not at then return end
  for _ = 1, math.min(3, n - 1) do
    at = at + RECORD
    if at > #bag then at = 1 end
    local other = string.sub(bag, at, at + REST - 1)
    if absent(s, p, (read_record(bag, other))) then reap(s, string.sub(field, 1, 2) .. other) end
  end
end

-- join puts a ticket into the line. came counts these and gone (room_advance)
-- those that leave it at its head, for the snapshot.
local function join(s, id, ord)
  redis.call('ZADD', LINE, ord, id)
  s.came = s.came + 1
end

-- enrolled is join for one that is heard of for the first time.
local function enrolled(s, id, ord, grace)
  join(s, id, str(ord))
  local field, rest = bag_of(id)
  keep(s, field, rest, redis.call('HGET', SEEN, field), grace)
end

-- waiting finds a ticket in line and renews its presence; un-parks it. Its order,
-- or nil: one that was absent is given up here, should no tick have come to it yet.
local function waiting(s, p, id, grace)
  local ord = redis.call('ZSCORE', LINE, id)
  local parked = not ord and redis.call('ZSCORE', PARKED, id)
  if not ord and not parked then return nil end
  local field, rest = bag_of(id)
  local bag = redis.call('HGET', SEEN, field)
  local ms = read_record(bag, rest)
  if absent(s, p, ms) then
    reap(s, id)
    return nil
  end
  -- Browsers let a hidden page wake once a minute, whatever it is advised: for somebody who was silent for so
  -- long and came back, the next poll is waited for likewise.
  grace = math.max(grace, 15 + math.min(75, math.floor((s.now / 1000 - ms) / 1000)))
  if parked then
    join(s, id, parked)
    redis.call('ZREM', PARKED, id)
  end
  keep(s, field, rest, bag, grace)
  if bag then neighbours(s, p, field, rest, bag) end
  return tonumber(ord or parked)
end

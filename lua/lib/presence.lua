-- presence: who is in line, and when they were heard of.

-- Presence is kept beside the line in bags, one for each of 2^17 beginnings of an
-- id (ids are 16 bytes): a record of 21 bytes in place of a member of a second
-- sorted set, which would take 118. A record is the rest of the id, and 7 bytes
-- with the tenth of a second in which the store last checked the ticket, times
-- 2^15, plus the hold: the seconds for which the ticket then counts as present.
local RECORD, REST, MOST_HOLD = 21, 14, 32767

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

-- read_record returns when a ticket was last checked (µs, whole tenths of a
-- second) and its hold in seconds; 0, 0 without a record.
local function read_record(bag, rest)
  local at = bag and record(bag, rest)
  if not at then return 0, 0 end
  local score = struct.unpack('>I7', bag, at + REST)
  return math.floor(score / 32768) * 100000, score % 32768
end

local function last_heard(id)
  local field, rest = bag_of(id)
  return read_record(redis.call('HGET', SEEN, field), rest)
end

-- absent reports whether a ticket that was last checked then, with that hold, is given up: where absence has been lowered since, not
-- before its hold has run out, as the visitor was advised to poll by the former one.
local function absent(s, p, checked, hold) return checked < s.now - math.max(p.absence, 1000000 * hold) - 1000000 end

-- keep writes that a waiting ticket was checked now. bag is what its field holds.
local function keep(s, field, rest, bag, hold)
  local new = rest .. struct.pack('>I7', math.floor(s.now / 100000) * 32768 + math.min(MOST_HOLD, hold))
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
    if absent(s, p, read_record(bag, other)) then reap(s, string.sub(field, 1, 2) .. other) end
  end
end

-- join puts a ticket into the line. came counts these and gone (room_advance)
-- those that leave it at its head, for the snapshot.
local function join(s, id, ord)
  redis.call('ZADD', LINE, ord, id)
  s.came = s.came + 1
end

-- enrolled is join for one that is heard of for the first time.
local function enrolled(s, id, ord, hold)
  join(s, id, str(ord))
  local field, rest = bag_of(id)
  keep(s, field, rest, redis.call('HGET', SEEN, field), hold)
end

-- waiting finds a ticket in line and renews its presence; un-parks it. Its order,
-- or nil: one that was absent is given up here, should no tick have come to it yet.
local function waiting(s, p, id, hold)
  local ord = redis.call('ZSCORE', LINE, id)
  local parked = not ord and redis.call('ZSCORE', PARKED, id)
  if not ord and not parked then return nil end
  local field, rest = bag_of(id)
  local bag = redis.call('HGET', SEEN, field)
  local checked, held = read_record(bag, rest)
  if absent(s, p, checked, held) then
    reap(s, id)
    return nil
  end
  -- Browsers let a hidden page wake once a minute, whatever it is advised: a visitor who was silent for so long and
  -- came back is held as long again. A check never shortens the hold: an earlier answer may have advised a later poll.
  hold = math.max(hold, 15 + math.min(75, math.floor((s.now - checked) / 1000000)),
    math.ceil((checked - s.now) / 1000000) + held)
  if parked then
    join(s, id, parked)
    redis.call('ZREM', PARKED, id)
    s.returned = s.returned + 1
    count_minute(s, 'b', 1)
  end
  keep(s, field, rest, bag, hold)
  if bag then neighbours(s, p, field, rest, bag) end
  return tonumber(ord or parked)
end

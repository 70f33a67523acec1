-- presence: which tickets wait, and when each was checked.

-- Presence is kept beside the queue in buckets, one for each of 2^17 beginnings of an id (ids are 16 bytes), as records of 21 bytes; a
-- member of a second sorted set would take 118. A record is the rest of the id, and 7 bytes with the tenth of a second in which the
-- store last checked the ticket, times 2^15, plus the hold: the seconds for which the ticket then counts as present.
local RECORD, REST, MOST_HOLD = 21, 14, 32767

-- presence_bucket returns the field of an id's bucket in SEEN, and the rest of the id.
local function presence_bucket(id)
  return string.sub(id, 1, 2) .. (string.byte(id, 3) < 128 and '0' or '1'), string.sub(id, 3)
end

-- find_record returns where the record of an id begins in its bucket; nil where there is none.
local function find_record(bucket, rest)
  local at = 0
  repeat
    at = string.find(bucket, rest, at + 1, true)
  until not at or at % RECORD == 1
  return at
end

local function forget_presence(id)
  local field, rest = presence_bucket(id)
  local bucket = redis.call('HGET', SEEN, field)
  local at = bucket and find_record(bucket, rest)
  if not at then return end
  if #bucket == RECORD then
    redis.call('HDEL', SEEN, field)
  else
    redis.call('HSET', SEEN, field, string.sub(bucket, 1, at - 1) .. string.sub(bucket, at + RECORD))
  end
end

-- read_presence returns when a ticket was last checked (µs, whole tenths of a second) and its hold in seconds; 0, 0 without a record.
local function read_presence(bucket, rest)
  local at = bucket and find_record(bucket, rest)
  if not at then return 0, 0 end
  local score = struct.unpack('>I7', bucket, at + REST)
  return math.floor(score / 32768) * 100000, score % 32768
end

local function last_checked(id)
  local field, rest = presence_bucket(id)
  return read_presence(redis.call('HGET', SEEN, field), rest)
end

-- absent reports whether a ticket has expired: its last check is more than absence ago. Where absence has been lowered since the check, the ticket
-- is kept until its hold has ended, because the visitor was advised to poll by the former absence.
local function absent(s, p, checked, hold) return checked < s.now - math.max(p.absence, 1000000 * hold) - 1000000 end

-- record_presence writes that a waiting ticket was checked now. bucket is the present value of its field.
local function record_presence(s, field, rest, bucket, hold)
  local new = rest .. struct.pack('>I7', math.floor(s.now / 100000) * 32768 + math.min(MOST_HOLD, hold))
  local at = bucket and find_record(bucket, rest)
  if at then
    new = string.sub(bucket, 1, at - 1) .. new .. string.sub(bucket, at + RECORD)
  elseif bucket then
    new = bucket .. new
  end
  redis.call('HSET', SEEN, field, new)
end

local function remove_from_queue(id)
  local n = redis.call('ZREM', QUEUE, id) + redis.call('ZREM', PARKED, id)
  forget_presence(id)
  return n
end

-- count_left counts a ticket that leaves the queue in the history, by its time in the queue until its last poll.
local function count_left(s, id, order)
  if order then count_octave(s, 'y', wait_bucket(last_checked(id) - room_time(s, math.max(order, s.drawn))), 1) end
end

-- reap removes a ticket that was absent for too long.
local function reap(s, id)
  count_left(s, id, tonumber(redis.call('ZSCORE', QUEUE, id) or redis.call('ZSCORE', PARKED, id)))
  remove_from_queue(id)
  s.abandons = s.abandons + 1
  count_minute(s, 'x', 1)
end

-- reap_neighbours reaps the absent among the next three records of a ticket's bucket. Present tickets are each checked once in
-- a quarter of absence, so these checks find most of the absent tickets.
local function reap_neighbours(s, p, field, rest, bucket)
  local n = #bucket / RECORD
  if n < 2 then return end
  local at = find_record(bucket, rest)
  if not at then return end
  for _ = 1, math.min(3, n - 1) do
    at = at + RECORD
    if at > #bucket then at = 1 end
    local other = string.sub(bucket, at, at + REST - 1)
    if absent(s, p, read_presence(bucket, other)) then reap(s, string.sub(field, 1, 2) .. other) end
  end
end

-- add_to_queue adds a ticket to the queue. s.came counts these, and s.gone (room_advance) those that leave it at its front.
local function add_to_queue(s, id, order)
  redis.call('ZADD', QUEUE, order, id)
  s.came = s.came + 1
end

-- enrol_ticket adds a ticket that the store did not hold.
local function enrol_ticket(s, id, order, hold)
  add_to_queue(s, id, str(order))
  local field, rest = presence_bucket(id)
  record_presence(s, field, rest, redis.call('HGET', SEEN, field), hold)
end

-- renew_waiting renews the presence of a waiting ticket, moves it back from PARKED if it is there, and returns its order. It returns nil
-- where the ticket does not wait, and for one that was absent for too long, which it reaps if no tick has done so yet.
local function renew_waiting(s, p, id, hold)
  local order = redis.call('ZSCORE', QUEUE, id)
  local parked = not order and redis.call('ZSCORE', PARKED, id)
  if not order and not parked then return nil end
  local field, rest = presence_bucket(id)
  local bucket = redis.call('HGET', SEEN, field)
  local checked, held = read_presence(bucket, rest)
  if absent(s, p, checked, held) then
    reap(s, id)
    return nil
  end
  -- Browsers wake a hidden page once a minute, whatever it is advised: a visitor who was silent for so long and came back is held as long
  -- again. A check never shortens the hold: an earlier reply may have advised a later poll.
  hold = math.max(hold, 15 + math.min(75, math.floor((s.now - checked) / 1000000)),
    math.ceil((checked - s.now) / 1000000) + held)
  if parked then
    add_to_queue(s, id, parked)
    redis.call('ZREM', PARKED, id)
    s.returned = s.returned + 1
    count_minute(s, 'b', 1)
  end
  record_presence(s, field, rest, bucket, hold)
  if bucket then reap_neighbours(s, p, field, rest, bucket) end
  return tonumber(order or parked)
end

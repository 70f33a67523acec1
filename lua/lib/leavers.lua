-- leavers: who left the queue without a word.
--
-- Tickets are counted by their time in the queue: those that the head of the queue reached,
-- admitted or absent, and a sample of those that wait, present or absent. Counts fade with
-- room time. They travel in the snapshot as lists of bucket (wait_bucket), present, absent, and
-- the seconds that these spent in the queue beyond the bucket's begin, the last three in
-- thousandths; the next tick goes on from there.

local HEADS_FADE, SAMPLE_FADE = 300, 30 -- seconds
local FADED = 0.01 -- a bucket with fewer tickets is dropped
local NEAREST = 400 -- tickets whose holds are in the snapshot
local LONG_HOLD = 60 -- seconds; a longer hold says little of when the next poll was advised

-- count_ticket notes a ticket: gone (its hold ran out after us microseconds in the
-- queue), or present after as many.
local function count_ticket(heads, us, gone)
  local b = wait_bucket(us)
  local h = heads[b] or { 0, 0, 0 }
  heads[b] = h
  local i = gone and 2 or 1
  h[i] = h[i] + 1
  h[3] = h[3] + math.max(0, us / 1000000 - 2 ^ (b / 4) + 1)
end

-- fade adds the list of the tick before to the counts of this tick, and returns the
-- new list. seconds of room time lie between, and counts fade by time; returned tickets were parked and came back since.
local function fade(heads, list, seconds, time, returned)
  local share, missing = math.exp(-seconds / time), 0
  for i = 1, #list, 4 do
    local h = heads[list[i]] or { 0, 0, 0 }
    heads[list[i]] = h
    for k = 1, 3 do h[k] = h[k] + list[i + k] / 1000 * share end
  end
  for _, h in pairs(heads) do missing = missing + h[2] end
  local gone = missing > 0 and math.max(0, 1 - returned / missing) or 0
  local new = {}
  for b = 0, WAIT_BUCKETS do
    local h = heads[b]
    if h and h[1] + h[2] >= FADED then
      h[1], h[2] = h[1] + h[2] * (1 - gone), h[2] * gone -- whoever came back was present after all
      new[#new + 1] = b
      for k = 1, 3 do new[#new + 1] = math.floor(h[k] * 1000 + 0.5) end
    end
  end
  return new
end

-- holds returns for how many more seconds each of the nearest tickets, a list of ids and
-- orders, counts as present: 0 when it is absent. A ticket in the front that is silent for over half of its
-- hold missed a poll: it is there as -1 - seconds.
local function holds(s, heads)
  local n = math.min(NEAREST, #heads / 2)
  if n == 0 then return {} end
  local fields, out = {}, {}
  for i = 1, n do fields[i] = bag_of(heads[2 * i - 1]) end
  local bags = redis.call('HMGET', SEEN, unpack(fields))
  for i = 1, n do
    local checked, hold = read_record(bags[i], string.sub(heads[2 * i - 1], 3))
    local silent = (s.now - checked) / 1000000
    local left = math.max(0, math.ceil(hold - silent))
    if left > 0 and hold <= LONG_HOLD and silent > hold / 2 then left = -1 - left end
    out[i] = left
  end
  return out
end

-- departures: estimates how many visitors leave the queue silently.
--
-- Tickets are counted by their time in the queue: those that reached the front, admitted or absent, and a sample of those that wait,
-- present or absent. Counts fade with room time. The snapshot carries them as lists of bucket (wait_bucket), present, absent, and the
-- seconds that these spent in the queue beyond the bucket's lower bound, the last three in thousandths; the next tick continues from there.

local PASSED_FADE, SAMPLE_FADE = 300, 30 -- seconds
local FADED = 0.01 -- a bucket with fewer tickets is dropped
local NEAREST = 400 -- tickets whose holds are in the snapshot
local LONG_HOLD = 60 -- seconds; a longer hold does not show when the next poll was advised

-- count_ticket counts a ticket: absent (its hold ended after us microseconds in the queue), or present after as many.
local function count_ticket(counts, us, absent_then)
  local bucket = wait_bucket(us)
  local c = counts[bucket] or { 0, 0, 0 }
  counts[bucket] = c
  local i = absent_then and 2 or 1
  c[i] = c[i] + 1
  c[3] = c[3] + math.max(0, us / 1000000 - 2 ^ (bucket / 4) + 1)
end

-- fade adds the faded list of the tick before, seconds of room time ago, to the counts of this tick, and returns the new list. returned
-- tickets were parked and came back since.
local function fade(counts, list, seconds, time, returned)
  local share, missing = math.exp(-seconds / time), 0
  for i = 1, #list, 4 do
    local c = counts[list[i]] or { 0, 0, 0 }
    counts[list[i]] = c
    for k = 1, 3 do c[k] = c[k] + list[i + k] / 1000 * share end
  end
  for _, c in pairs(counts) do missing = missing + c[2] end
  local gone = missing > 0 and math.max(0, 1 - returned / missing) or 0
  local new = {}
  for bucket = 0, WAIT_BUCKETS do
    local c = counts[bucket]
    if c and c[1] + c[2] >= FADED then
      c[1], c[2] = c[1] + c[2] * (1 - gone), c[2] * gone -- those who returned count as present
      new[#new + 1] = bucket
      for k = 1, 3 do new[#new + 1] = math.floor(c[k] * 1000 + 0.5) end
    end
  end
  return new
end

-- holds returns for how many more seconds each of the nearest tickets, a list of ids and orders, counts as present: 0 when it is absent,
-- and -1 - seconds for a ticket in the front that has missed a poll, being silent for over half of its hold.
local function holds(s, nearest)
  local n = math.min(NEAREST, #nearest / 2)
  if n == 0 then return {} end
  local fields, out = {}, {}
  for i = 1, n do fields[i] = presence_bucket(nearest[2 * i - 1]) end
  local buckets = redis.call('HMGET', SEEN, unpack(fields))
  for i = 1, n do
    local checked, hold = read_presence(buckets[i], string.sub(nearest[2 * i - 1], 3))
    local silent = (s.now - checked) / 1000000
    local left = math.max(0, math.ceil(hold - silent))
    if left > 0 and hold <= LONG_HOLD and silent > hold / 2 then left = -1 - left end
    out[i] = left
  end
  return out
end

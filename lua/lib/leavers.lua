-- leavers: how many tickets the head of the queue reached, by their time in the queue: admitted, or absent.
--
-- Counts fade with 300 s of room time. They travel in the snapshot as a list of
-- bucket (wait_bucket), admitted, absent, and the seconds that these spent in the
-- queue beyond the bucket's begin, the last three in thousandths; the next tick goes on from there.

local FADE, FADED = 300, 0.01 -- seconds; a bucket with fewer heads is dropped

-- count_head notes a ticket that the head of the queue reached: absent (its hold had
-- run out after us microseconds in the queue) or admitted after as many.
local function count_head(heads, us, absent)
  local b = wait_bucket(us)
  local h = heads[b] or { 0, 0, 0 }
  heads[b] = h
  local i = absent and 2 or 1
  h[i] = h[i] + 1
  h[3] = h[3] + math.max(0, us / 1000000 - 2 ^ (b / 4) + 1)
end

-- fade_heads adds the list of the tick before to the heads of this tick, and
-- returns the new list. seconds of room time lie between; returned tickets were parked and came back since.
local function fade_heads(heads, list, seconds, returned)
  local keep, absent = math.exp(-seconds / FADE), 0
  for i = 1, #list, 4 do
    local h = heads[list[i]] or { 0, 0, 0 }
    heads[list[i]] = h
    for k = 1, 3 do h[k] = h[k] + list[i + k] / 1000 * keep end
  end
  for _, h in pairs(heads) do absent = absent + h[2] end
  local gone = absent > 0 and math.max(0, 1 - returned / absent) or 0
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

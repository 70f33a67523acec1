#!lua flags=no-writes
-- origin_read: gives what gateways said of an origin lately.
-- KEYS: health, jobs
-- ARGV: now, age
-- RETURNS: {1 where bulk work ran lately that gives way, then for each gateway how many wait and its text}
-- INVARIANT: looking changes nothing.
-- INCLUDE: clock

-- age: µs after which nothing counts any more that was said.
local now, age = clock_now(ARGV[1]), tonumber(ARGV[2])
local JOBS = 4500000 -- so long after such work ran it is in what gateways measured of the last three seconds
local ran = tonumber(redis.call('GET', KEYS[2]) or 0)
local out = { math.abs(now - ran) <= JOBS and 1 or 0 }
for _, v in ipairs(redis.call('HVALS', KEYS[1])) do
  local at, waiting, text = string.match(v, '^(%d+)|(%d+)|(.*)$')
  if at and math.abs(now - tonumber(at)) <= age then
    out[#out + 1] = waiting
    out[#out + 1] = text
  end
end
return out

#!lua flags=no-writes
-- origin_read: reads the recent measurements of an origin by gateways.
-- KEYS: health, jobs
-- ARGV: now, age
-- RETURNS: {1 where bulk work that yields ran recently, then for each gateway the visitors that wait and its text}
-- INVARIANT: reads only.
-- INCLUDE: clock

-- age: µs after which a measurement does not count any more.
local now, age = clock_now(ARGV[1]), tonumber(ARGV[2])
local JOBS = 4500000 -- gateways measure over three seconds
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

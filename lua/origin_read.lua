#!lua flags=no-writes
-- origin_read: gives what gateways said of an origin lately.
-- KEYS: health
-- ARGV: now, age
-- RETURNS: {for each gateway how many wait, then its text}
-- INVARIANT: looking changes nothing.
-- INCLUDE: clock

-- age: µs after which nothing counts any more that was said.
local now, age = clock_now(ARGV[1]), tonumber(ARGV[2])
local out = {}
for _, v in ipairs(redis.call('HVALS', KEYS[1])) do
  local at, waiting, text = string.match(v, '^(%d+)|(%d+)|(.*)$')
  if at and math.abs(now - tonumber(at)) <= age then
    out[#out + 1] = waiting
    out[#out + 1] = text
  end
end
return out

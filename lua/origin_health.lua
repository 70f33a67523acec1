#!lua
-- origin_health: tells the others how an origin was to one gateway lately, and how many wait for it.
-- KEYS: health
-- ARGV: now, gateway, waiting, text
-- RETURNS: {OK}
-- INVARIANT: what a gateway said is forgotten when it says no more.
-- INCLUDE: clock

local now = clock_now(ARGV[1])
local KEEP, SWEEP = 30000000, 10
redis.call('HSET', KEYS[1], ARGV[2], int(now) .. '|' .. ARGV[3] .. '|' .. ARGV[4])
redis.call('EXPIRE', KEYS[1], 60)
-- Those of gateways that are gone; few are there, but not each second is needed for it.
if math.floor(now / 1000000) % SWEEP == 0 then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], '^%d+') or 0)
    if at < now - KEEP or at > now + KEEP then redis.call('HDEL', KEYS[1], all[i]) end
  end
end
return { 'OK' }

#!lua
-- origin_health: writes one gateway's recent measurements of an origin, and how many visitors wait for it.
-- KEYS: health
-- ARGV: now, gateway, waiting, text
-- RETURNS: {OK}
-- INVARIANT: a gateway's measurements expire when it writes no more.
-- INCLUDE: clock

local now = clock_now(ARGV[1])
local KEEP, SWEEP = 30000000, 10
redis.call('HSET', KEYS[1], ARGV[2], int(now) .. '|' .. ARGV[3] .. '|' .. ARGV[4])
redis.call('EXPIRE', KEYS[1], 60)
-- Measurements of gateways that are gone, every SWEEP seconds.
if math.floor(now / 1000000) % SWEEP == 0 then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], '^%d+') or 0)
    if at < now - KEEP or at > now + KEEP then redis.call('HDEL', KEYS[1], all[i]) end
  end
end
return { 'OK' }

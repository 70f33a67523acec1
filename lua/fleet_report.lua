#!lua flags=allow-oom
-- fleet_report: records what a gateway reports of itself, and returns the reports of all gateways.
-- KEYS: fleet
-- ARGV: now, gateway, report
-- RETURNS: {OK, now, then for each gateway its name, the time of its report and the report}
-- REPLY OK: 'OK'
-- INVARIANT: a gateway that reports no more is forgotten after a minute.
-- INCLUDE: clock

-- report: the gateway's text; '' removes the gateway.
local now = clock_now(ARGV[1])
local KEEP = 60000000
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[2])
else
  redis.call('HSET', KEYS[1], ARGV[2], int(now) .. '|' .. ARGV[3])
  redis.call('EXPIRE', KEYS[1], 60)
end
local out, gone = { REPLY_OK, int(now) }, {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at, report = string.match(all[i + 1], '^(%d+)|(.*)$')
  if not at or math.abs(now - tonumber(at)) > KEEP then
    gone[#gone + 1] = all[i]
  else
    out[#out + 1], out[#out + 2], out[#out + 3] = all[i], at, report
  end
end
if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
return out

#!lua flags=allow-oom
-- fair_pull: grants units to the flows that have work, by weight.
-- KEYS: active, idle, backlog, weights, clock
-- ARGV: now, want (units), batch (most units in one visit)
-- RETURNS: {flow, units, ...} in the order of the visits
-- INVARIANT: for two flows with work throughout |served/weight| differs by at most one visit of each; no more is granted than there is.
-- INCLUDE: clock, fair
local ACTIVE, IDLE, BACKLOG, WEIGHTS, CLOCK = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local want, batch = tonumber(ARGV[2]), tonumber(ARGV[3])
local visits = {}
local v
while want > 0 do
  local flow, tag = fair.first(ACTIVE)
  if not flow then break end
  v = tag
  local units = tonumber(redis.call('HGET', BACKLOG, flow))
  local n = math.min(units, batch, want)
  fair.advance(ACTIVE, flow, tag, n, tonumber(redis.call('HGET', WEIGHTS, flow)))
  if units > n then
    redis.call('HSET', BACKLOG, flow, int(units - n))
  else
    redis.call('HDEL', BACKLOG, flow)
    redis.call('HDEL', WEIGHTS, flow)
    fair.leave(ACTIVE, IDLE, v, flow)
  end
  want = want - n
  visits[#visits + 1] = flow
  visits[#visits + 1] = n
end
if v then
  fair.forget(IDLE, v)
  redis.call('SET', CLOCK, int(v))
  for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, 2592000) end
end
return visits

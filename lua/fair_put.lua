#!lua
-- fair_put: says how much work flows have, and their weights.
-- KEYS: active, idle, backlog, weights, clock
-- ARGV: now, how (set or add), flow, units (whole; add may take away), weight (thousandths), ...
-- RETURNS: number of flows that have work now
-- INVARIANT: a flow is active exactly while it has work; one that was idle comes back at max(v, its last tag), with no credit.
-- INCLUDE: clock, fair
local ACTIVE, IDLE, BACKLOG, WEIGHTS, CLOCK = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local v = tonumber(redis.call('GET', CLOCK) or 0)
for i = 3, #ARGV, 3 do
  local flow, units, weight = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  if ARGV[2] == 'add' then units = units + tonumber(redis.call('HGET', BACKLOG, flow) or 0) end
  if units > 0 then
    redis.call('HSET', BACKLOG, flow, int(units))
    redis.call('HSET', WEIGHTS, flow, int(weight))
    fair.enter(ACTIVE, IDLE, v, flow)
  else
    redis.call('HDEL', BACKLOG, flow)
    redis.call('HDEL', WEIGHTS, flow)
    fair.leave(ACTIVE, IDLE, v, flow)
  end
end
-- A queue that nobody has asked for 30 days is gone.
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, 2592000) end
return redis.call('ZCARD', ACTIVE)

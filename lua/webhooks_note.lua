#!lua
-- webhooks_note: records states of rooms and queues the events of those that have changed.
-- KEYS: state, due, bodies, counts
-- ARGV: now, most (events that one endpoint may have in the queue), ...
-- RETURNS: for each group 1 if its event was queued or dropped, 0 if the state has not changed
-- INVARIANT: a change of a state queues its event once, however many gateways see the change: state and queue change in one step.
-- INCLUDE: clock

-- Then groups: field, expected, initial, value, id, body, number of endpoints, endpoints. The state of field is initial until it was
-- recorded. Nothing happens if it is not expected ('': any) or is value already. An empty value removes the field; an empty field queues
-- the event in any case. An event that an endpoint has in the queue already is not queued for it again.
local STATE, DUE, BODIES, COUNTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, most = clock_now(ARGV[1]), tonumber(ARGV[2])

local function queue(endpoint, id, body)
  local member = endpoint .. ' ' .. id
  if redis.call('HEXISTS', BODIES, member) == 1 then return end
  if tonumber(redis.call('HGET', COUNTS, 'pending ' .. endpoint) or 0) >= most then
    redis.call('HINCRBY', COUNTS, 'dropped ' .. endpoint, 1)
    return
  end
  redis.call('ZADD', DUE, int(now), member)
  redis.call('HSET', BODIES, member, '0|' .. int(now) .. '|' .. body)
  redis.call('HINCRBY', COUNTS, 'pending ' .. endpoint, 1)
end

-- changed moves the state of a field, and reports whether it was another.
local function changed(field, expected, initial, value)
  if field == '' then return true end
  local current = redis.call('HGET', STATE, field) or initial
  if expected ~= '' and current ~= expected or current == value then return false end
  if value == '' then
    redis.call('HDEL', STATE, field)
  else
    redis.call('HSET', STATE, field, value)
  end
  return true
end

local out, i = {}, 3
while i <= #ARGV do
  local endpoints = tonumber(ARGV[i + 6])
  local moved = changed(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  if moved then
    for e = 1, endpoints do queue(ARGV[i + 6 + e], ARGV[i + 4], ARGV[i + 5]) end
  end
  out[#out + 1] = moved and 1 or 0
  i = i + 7 + endpoints
end
return out

#!lua flags=allow-oom
-- webhooks_take: takes events that are due, for the one gateway that holds the lease.
-- KEYS: lease, state, due, bodies, dead, counts
-- ARGV: now, gateway, lease (µs), most, hidden (µs), ...
-- RETURNS: {HOLDER or OTHER, values of the fields, counts, events}: counts is a list of name and number, events a list of
--   'endpoint id' and 'tries|µs when it was queued|body'
-- REPLY HOLDER: 'H'  the gateway holds the lease
-- REPLY OTHER: 'O'  another gateway holds it; there are no events
-- INVARIANT: an event leaves the queue only through webhooks_settle: one that was taken is due again after hidden, so the death of a
--   gateway repeats an event and loses none.
-- INCLUDE: clock

-- Then the fields of STATE that are wanted.
local LEASE, STATE, DUE, BODIES, COUNTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local KEEP = 2592000 -- seconds after which the keys expire without gateways that send
local now = clock_now(ARGV[1])

local values = {}
for i = 6, #ARGV do values[#values + 1] = redis.call('HGET', STATE, ARGV[i]) or '' end
local counts = redis.call('HGETALL', COUNTS)
local holder, till = string.match(redis.call('GET', LEASE) or '', '^(%S+) (%d+)$')
if holder and holder ~= ARGV[2] and tonumber(till) > now then return { REPLY_OTHER, values, counts, {} } end
redis.call('SET', LEASE, ARGV[2] .. ' ' .. int(now + tonumber(ARGV[3])))
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, KEEP) end

local events = {}
if tonumber(ARGV[4]) > 0 then
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', int(now), 'LIMIT', 0, ARGV[4])) do
    local body = redis.call('HGET', BODIES, member)
    if body then
      redis.call('ZADD', DUE, int(now + tonumber(ARGV[5])), member)
      events[#events + 1] = member
      events[#events + 1] = body
    else
      redis.call('ZREM', DUE, member)
    end
  end
end
return { REPLY_HOLDER, values, counts, events }

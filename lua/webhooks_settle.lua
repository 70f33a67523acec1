#!lua flags=allow-oom
-- webhooks_settle: records the outcomes of deliveries.
-- KEYS: due, bodies, dead, counts
-- ARGV: now, kept (dead events), ...
-- RETURNS: for each group 1, or 0 if the event is not in the queue
-- INVARIANT: an event leaves the queue delivered or as one of the dead, and is counted once.
-- INCLUDE: clock

-- Then groups: endpoint, id, outcome (done, retry, later, dead), delay (µs), error. retry counts a try; later does not.
local DUE, BODIES, DEAD, COUNTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = clock_now(ARGV[1])

local function leave(endpoint, member, outcome)
  redis.call('ZREM', DUE, member)
  redis.call('HDEL', BODIES, member)
  redis.call('HINCRBY', COUNTS, 'pending ' .. endpoint, -1)
  redis.call('HINCRBY', COUNTS, outcome .. ' ' .. endpoint, 1)
end

local out = {}
for i = 3, #ARGV, 5 do
  local endpoint, id, outcome, reason = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 4]
  local member = endpoint .. ' ' .. id
  local entry = redis.call('HGET', BODIES, member)
  out[#out + 1] = entry and 1 or 0
  if entry then
    local tries, since, body = string.match(entry, '^(%d+)|(%d+)|(.*)$')
    if outcome == 'done' then
      leave(endpoint, member, 'delivered')
    elseif outcome == 'dead' then
      leave(endpoint, member, 'dead')
      redis.call('LPUSH', DEAD, table.concat({ endpoint, id, since, int(now), int(tonumber(tries) + 1), int(#reason) }, ' ') .. '\n' .. reason .. body)
      redis.call('LTRIM', DEAD, 0, tonumber(ARGV[2]) - 1)
    else
      redis.call('ZADD', DUE, int(now + tonumber(ARGV[i + 3])), member)
      if outcome == 'retry' then
        redis.call('HSET', BODIES, member, int(tonumber(tries) + 1) .. '|' .. since .. '|' .. body)
      end
    end
  end
end
return out

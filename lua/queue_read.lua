#!lua flags=no-writes
-- queue_read: reads the figures of the whole shard.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings
-- RETURNS: a list of
--   queued groups           of level high, normal, low
--   pending, ready, waiting, in flight
--   busy tenants, gates
--   jain, accuracy, longest backoff, mean refusals
--   spins, open groups
--   unserved jobs, their types
--   limits of types that are live
--   open breakers
--   age of the oldest waiting job   of level high, normal, low (ms; -1: there is none)
-- INVARIANT: reads only.
-- INCLUDE: clock, limiter, fair, bulk

local reply = {}
for level = 1, 3 do
  reply[level] = set.policy == 'score' and redis.call('ZCARD', K.levels[level])
    or redis.call('ZLEXCOUNT', K.lines, '[' .. level .. '/', '(' .. level .. '0')
end
reply[4], reply[5], reply[6] = int(shard.pending), redis.call('LLEN', K.ready), redis.call('ZCARD', K.waiting)
reply[7], reply[8], reply[9] = int(shard.inflight), redis.call('ZCARD', K.busy), redis.call('ZCARD', K.gates)
local s = redis.call('HMGET', K.state, 'jain', 'accuracy', 'most', 'mean')
for i = 1, 4 do reply[9 + i] = s[i] or '0' end
reply[14], reply[15] = int(shard.spins), int(shard.open_groups)
reply[16], reply[17] = int(shard.unserved), redis.call('HGET', K.state, 'unserved_types') or ''
reply[18], reply[19] = set.live_types, int(shard.tripped)
local n = 0
for at in string.gmatch(redis.call('HGET', K.state, 'oldest') or '0 0 0', '%d+') do
  n = n + 1
  reply[19 + n] = at == '0' and -1 or int(math.max(0, (now - now % 1000) / 1000 - tonumber(at)))
end
return reply

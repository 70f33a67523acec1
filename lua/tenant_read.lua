#!lua flags=no-writes
-- tenant_read: reads the settings and figures of tenants.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, tenant, ...
-- RETURNS: for each {weight, rate, groups, in flight, served, refused jobs, jobs to do, jobs a second, backoff, mean refusals in millionths, jobs counted, now,
--   groups queued high, normal, low, gate, concurrency, 1 if it is used up, the part of it that this shard has, groups of single jobs} or false
-- INVARIANT: reads only.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local reply = {}
for i = 3, #ARGV do
  local name = ARGV[i]
  if redis.call('HEXISTS', K.tenants, name) == 0 then
    reply[#reply + 1] = false
  else
    local t = bulk_tenant(name)
    local n = count_refused('N' .. name)
    reply[#reply + 1] = { int(t[T_WEIGHT]), int(t[T_RATE]), t[T_GROUPS], t[T_INFLIGHT], int(t[T_SERVED]), n, int(t[T_OPEN]), int(tenant_rate(t)),
      int(n > 0 and t[T_BACKOFF] or 0), int(t[T_MEAN] * 1000000), int(t[T_JOBS]), int(now), t[T_N1], t[T_N2], t[T_N3], int(t[T_GATE]), int(t[T_CONC]), t[T_FULL],
      t[T_CONC] > 0 and int(parts.slots(t)) or 0, t[T_ROLLING] }
  end
end
return reply

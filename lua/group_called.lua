#!lua flags=allow-oom
-- group_called: writes the result of the callback of an ended group.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, result, again
-- RETURNS: {1} or {reason}
-- INVARIANT: a callback is due until it was accepted or given up.
-- INCLUDE: clock, limiter, fair, bulk

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
if g[G_CALLBACK] == 1 then
  g[G_TRIES] = g[G_TRIES] + 1
  if ARGV[4] == 'done' then
    g[G_CALLBACK] = 2
  elseif ARGV[4] == 'failed' then
    g[G_CALLBACK] = 3
  end
  redis.call('ZADD', K.agenda, int(now + tonumber(ARGV[5])), gkey)
end
bulk_save()
return { 1 }

#!lua flags=allow-oom
-- breakers_read: lists the open breakers. If the caller names one of them, it is closed first.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, lift (name of the breaker to close; empty: none)
-- RETURNS: for each open breaker its name, opened, till, allow, given, failures, answers, last failure, its code
-- INVARIANT: jobs that a closed breaker held back may start immediately, and its record is deleted.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs, breakers

if ARGV[3] ~= '' then
  if not types.tripped(ARGV[3]) then return { 'not_found' } end
  types.forget(ARGV[3])
  bulk_save()
end
local reply, at = {}, '[b'
while shard.tripped > 0 do
  local list = redis.call('ZRANGEBYLEX', K.aside, at, '(c', 'LIMIT', 0, 100)
  for _, member in ipairs(list) do
    local name = string.sub(member, 2)
    local b = types.tripped(name)
    if b then
      for _, value in ipairs({ name, int(b.opened), int(b.till), int(b.allow), int(b.given), int(b.bad + b.pbad), int(b.n + b.pn), int(b.last), b.code }) do
        reply[#reply + 1] = value
      end
    end
  end
  if #list < 100 then break end
  at = '(' .. list[100]
end
return reply

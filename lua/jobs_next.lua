#!lua flags=allow-oom
-- jobs_next: ends runs as jobs_ack does, then takes jobs as jobs_pull does, in one step: for few jobs it costs little more than one of them.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, want, process, types (words; empty: every type), type_limits (words: type, rate, concurrency, batch, ...), runs (fence and µs, ...: lib bulkacks), key, ...
-- RETURNS: the reply of jobs_ack, and that of jobs_pull
-- INVARIANT: those of both; a job that this step has ended or returned is not in its lease when others are taken.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns, bulkleases, breakers, bulktypes, bulkacks, bulkpulls

local states = acks.take(7)
batches.save()
local reply = pulls.take()
bulk_save()
return { { states, tally.ends[COMPLETED], tally.ends[FAILED], unpack(acks.waits) }, reply }

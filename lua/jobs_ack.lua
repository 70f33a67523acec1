#!lua flags=allow-oom
-- jobs_ack: ends runs of jobs: each with its verdict, all in one step.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, runs (fence and µs, ...: lib bulkacks), key, ...
-- RETURNS: {a code for each run, in one string; groups that ended as COMPLETED, as FAILED; the µs that each throttled job waits}
-- INVARIANT: a failure that an open breaker explains spends no try; only the call that takes a job out of its lease with its fence decides its outcome (B3).
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns, bulkleases, breakers, bulkacks

local states = acks.take(3)
batches.save()
bulk_save()
return { states, tally.ends[COMPLETED], tally.ends[FAILED], unpack(acks.waits) }

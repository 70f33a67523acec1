#!lua flags=allow-oom
-- jobs_pull: takes jobs through the fair queue and the limits, and leases them.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, want, process, types (words; empty: every type), type_limits (words: type, rate, concurrency, batch, ...)
-- RETURNS: a list of
--   wait        µs until there may be more; 0: not before an event; negative: until the next slot of the global limit
--   more        1: there is work for more workers
--   dropped     number of jobs that were dropped
--   reordered   1: this call has changed the fair queue to another order
--   fence       of the first job; each further job has the next one
--   held        limits that let no further job start, as far as this call has read them (words: type, type@tenant or @tenant, and the time
--               in µs; -1: until an event)
--   then for the jobs of one group: group (a redrive has a * appended), tenant, type, level, pause (µs for which the limits of the group let
--   no further job start; -1: until an event, 0: one may start), number, and for each job key, record (begins with attempt and crashes if the
--   job has run before)
-- INVARIANT: a start passes the fair queue and every limit in one step (B4); a job leaves its queue and is leased in the same step; a pull
--   reads 1 MiB of records at most, or one job; a job of another type is deferred once and not read again; a job of a type whose limit is
--   used up is not read again before the limit lets it start.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns, bulkleases, breakers, bulktypes, bulkpulls

local reply = pulls.take()
bulk_save()
return reply

#!lua flags=no-writes
-- job_read: reads one job: its record and where it is.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, job
-- RETURNS: {reason}, or one of
--   {1, record, where, until, fence, failed tries, process, type of the group, 1 if it runs and is to be cancelled}
--     where   running or waiting, then until that time; cancelled; expired; or empty
--   {'not_kept', ended}   the record is gone; ended is 1 if the job has ended, 0 if it may never have been there
-- INVARIANT: reads only.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs, bulkleases

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
local jobkey = gkey .. '/' .. ARGV[4]
local record = redis.call('HGET', K.jobs, jobkey)
if record == 'K\n' then return { 'not_kept', 1 } end
-- Past its retention a group has no outcome either, so an unknown job may have been there.
local swept = g[G_FINISHED] > 0 and now >= g[G_FINISHED] + set.keep_jobs
if not record then return (g[G_GONE] > 0 or swept) and { 'not_kept', 0 } or { 'no_job' } end
local where, till, text, owner = '', 0, redis.call('HGET', K.runs, jobkey), ''
local run = read_run(text)
if string.sub(record, 1, 1) == 'P' then
  local _, _, _, _, expires = read_pending(record)
  record = string.sub(record, 1, string.find(record, '\n', 1, true)) -- without the payload
  local leased, waits = redis.call('ZSCORE', K.leases, jobkey), redis.call('ZSCORE', K.waiting, jobkey)
  local b, at, ends
  if not leased and not waits and g[G_INFLIGHT] > 0 then b, at, ends = batches.search(jobkey) end
  if leased then
    where, till, owner = 'running', tonumber(leased), string.match(text, '^%d+ %d+ %d+ %d+ %d+ (%S*)')
  elseif b then
    where, till, owner, run.fence = 'running', ends, b.owner, b.first + at - 1
  elseif g[G_STATUS] == CANCELLED then
    where = 'cancelled' -- the sweep (group_tend) has not written this yet
  elseif expires and now_ms() >= expires or g[G_EXPIRES] > 0 and now >= g[G_EXPIRES] then
    where = 'expired' -- likewise, or its turn has not come yet
  elseif waits then
    where, till = 'waiting', tonumber(waits)
  end
end
return { 1, record, where, int(till), int(run.fence), run.tries, owner, g[G_TYPE],
  (g[G_STATUS] == CANCELLED or g[G_CALLED_OFF] > 0 and redis.call('ZSCORE', K.aside, 'c' .. jobkey)) and 1 or 0 }

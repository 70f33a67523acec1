#!lua flags=allow-oom
-- job_cancel: cancels one job of a group: a waiting job immediately, a running one as soon as its process renews its lease.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, job, from (where the call before stopped searching; empty: at the beginning), bound
-- RETURNS: {code, where to continue (empty: nowhere), groups that ended as COMPLETED, as FAILED} or {reason, detail}
-- REPLY CANCELLED: 1  the job is cancelled
-- REPLY RUNNING: 2  it runs; its process learns of the cancel when it renews the lease, and ends it
-- REPLY NOT_FOUND: 3  the pages searched so far do not hold it
-- INVARIANT: a job has one outcome; a step searches a bounded number of pages of the group's jobs.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkleases

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
local id, from, bound = ARGV[4], ARGV[5], tonumber(ARGV[6])
local jobkey, t = gkey .. '/' .. id, bulk_tenant(g[G_TENANT])
local record = redis.call('HGET', K.jobs, jobkey)
if record == 'K\n' then return { 'not_kept', 1 } end
if not record then return g[G_GONE] > 0 and { 'not_kept', 0 } or { 'no_job' } end
if string.sub(record, 1, 1) == 'C' then return { REPLY_CANCELLED, '', 0, 0 } end
if string.sub(record, 1, 1) ~= 'P' then return { 'ended', string.sub(record, 1, 1) } end
local cancelled = g[G_STATUS] == CANCELLED -- the whole group; its running jobs end when their leases are renewed

-- running notes that a running job is to be cancelled, and replies so.
local function running()
  if not cancelled and redis.call('ZADD', K.aside, 'NX', 0, 'c' .. jobkey) == 1 then g[G_CALLED_OFF] = g[G_CALLED_OFF] + 1 end
  bulk_save()
  return { REPLY_RUNNING, '', 0, 0 }
end

if redis.call('ZSCORE', K.leases, jobkey) or from == '' and g[G_INFLIGHT] > 0 and batches.search(jobkey) then return running() end
if cancelled then return { REPLY_CANCELLED, '', 0, 0 } end

-- from_pages removes the job from the pages of the group's jobs, from page p on; it returns whether the job was there, and the next page to search.
local function from_pages(p)
  for _ = 1, bound do
    if p > g[G_TP] then return false end
    local field = gkey .. ':' .. int(p)
    local page = redis.call('HGET', K.order, field) or ''
    local at = p == g[G_HP] and g[G_HO] or 0
    local found_at = string.find('\n' .. string.sub(page, at + 1), '\n' .. id .. '\n', 1, true)
    if found_at then
      page = string.sub(page, 1, at + found_at - 1) .. string.sub(page, at + found_at + #id + 1)
      g[G_ADDED], shard.pending = g[G_ADDED] - 1, shard.pending - 1
      if p == g[G_TP] then g[G_TN] = g[G_TN] - 1 end
      if p == g[G_HP] and #page == g[G_HO] then
        redis.call('HDEL', K.order, field)
        if g[G_HP] == g[G_TP] then g[G_TP], g[G_TN] = g[G_TP] + 1, 0 end
        g[G_HP], g[G_HO] = g[G_HP] + 1, 0
      elseif page == '' then
        redis.call('HDEL', K.order, field)
      else
        redis.call('HSET', K.order, field, page)
      end
      return true
    end
    p = p + 1
  end
  return false, p
end

-- from_front removes the job from the front of the group, searching from a member on.
local function from_front(after)
  if g[G_FRONT] == 0 then return false end
  local members = redis.call('ZRANGEBYLEX', K.front, (after == '' and '[+' .. gkey .. ' ' or '(' .. after), '(+' .. gkey .. '!', 'LIMIT', 0, bound * 10)
  for _, member in ipairs(members) do
    if work.job_of(g, member) == jobkey then
      redis.call('ZREM', K.front, member)
      g[G_FRONT], shard.pending = g[G_FRONT] - 1, shard.pending - 1
      return true
    end
  end
  return false, #members == bound * 10 and members[#members] or nil
end

-- from_deferred removes the job from the deferred jobs, searching from a member on.
local function from_deferred(after)
  for _, kind in ipairs(deferred_kinds(gkey)) do
    local first, last = deferred_range('j' .. gkey .. ' ' .. kind)
    if after == '' or after >= string.sub(first, 2) and after < string.sub(last, 2) then
      local members = redis.call('ZRANGEBYLEX', K.aside, after == '' and first or '(' .. after, last, 'LIMIT', 0, bound * 10)
      for _, member in ipairs(members) do
        if string.match(member, '^j%S+ %S+ %d+ (.+)$') == id then
          take_deferred(g, kind, { member })
          return true
        end
      end
      if #members == bound * 10 then return false, members[#members] end
      after = ''
    end
  end
  return false
end

local found, next_at = false, nil
if from == '' then
  if redis.call('ZREM', K.waiting, jobkey) == 1 then
    redis.call('ZREM', K.refused, refused_of('N', g, jobkey), refused_of('S', g, jobkey))
    found = true
  elseif g[G_FRONT] > 0 and redis.call('ZREM', K.front, jobkey) == 1 then -- as an earlier version wrote it
    g[G_FRONT], shard.pending, found = g[G_FRONT] - 1, shard.pending - 1, true
  elseif g[G_READY] > 0 and redis.call('LREM', K.ready, 1, jobkey) == 1 then
    g[G_READY], found = g[G_READY] - 1, true
  end
end
local where = string.sub(from, 1, 1)
if not found and (where == '' or where == '+') then
  found, next_at = from_front(from)
  from, where = '', ''
end
if not found and not next_at and g[G_ASIDE] > 0 and (where == '' or where == 'j') then
  found, next_at = from_deferred(from)
end
if not found and not next_at then
  local page
  found, page = from_pages(tonumber(from) or g[G_HP])
  next_at = page and int(page)
end
if not found then
  if not next_at and batches.search(jobkey) then return running() end -- it has started during the search
  bulk_save()
  return { REPLY_NOT_FOUND, next_at or '', 0, 0 }
end
cancel_job(g, t, jobkey)
requeue(g)
check_complete(g)
bulk_save()
return { REPLY_CANCELLED, '', tally.ends[COMPLETED], tally.ends[FAILED] }

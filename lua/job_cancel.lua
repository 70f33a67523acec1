#!lua flags=allow-oom
-- job_cancel: ends one job of a group that has not ended: at once where it waits, and where it runs as soon as its process hears of it.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists
-- ARGV: now, settings, group, job, from (where the call before stopped to look; empty: at the beginning), bound
-- RETURNS: {1 (cancelled), 2 (it runs and is told to end) or 3 (not found so far), where to go on (empty: nowhere), groups that ended as COMPLETED, as FAILED} or {reason, detail}
-- INVARIANT: a job has one outcome; a step looks through as many pages of the group's line as it may.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local gkey = redis.call('HGET', K.names, ARGV[3])
local g = gkey and bulk_group(gkey)
if not g then return { 'not_found' } end
local id, from, bound = ARGV[4], ARGV[5], tonumber(ARGV[6])
local jobkey, t = gkey .. '/' .. id, bulk_tenant(g[G_TENANT])
local record = redis.call('HGET', K.jobs, jobkey)
if record == 'K\n' then return { 'not_kept', 1 } end
if not record then return g[G_GONE] > 0 and { 'not_kept', 0 } or { 'no_job' } end
if string.sub(record, 1, 1) == 'C' then return { 1, '', 0, 0 } end
if string.sub(record, 1, 1) ~= 'P' then return { 'ended', string.sub(record, 1, 1) } end
local cancelled = g[G_STATUS] == CANCELLED -- the group, whose jobs are told to end as it is
if redis.call('ZSCORE', K.leases, jobkey) then
  if not cancelled and redis.call('ZADD', K.aside, 'NX', 0, 'c' .. jobkey) == 1 then g[G_CALLED_OFF] = g[G_CALLED_OFF] + 1 end
  bulk_save()
  return { 2, '', 0, 0 }
end
if cancelled then return { 1, '', 0, 0 } end

-- from_line takes the job out of the pages of the group's line, from page p on; it returns whether it was there, and the next page to look at.
local function from_line(p)
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

-- from_front takes it out of the front, from a member on.
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

-- from_aside takes it out of those that are set aside, from a member on.
local function from_aside(after)
  for _, kind in ipairs(aside_kinds(gkey)) do
    local first, last = aside_range('j' .. gkey .. ' ' .. kind)
    if after == '' or after >= string.sub(first, 2) and after < string.sub(last, 2) then
      local members = redis.call('ZRANGEBYLEX', K.aside, after == '' and first or '(' .. after, last, 'LIMIT', 0, bound * 10)
      for _, member in ipairs(members) do
        if string.match(member, '^j%S+ %S+ %d+ (.+)$') == id then
          leave_aside(g, kind, { member })
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
  found, next_at = from_aside(from)
end
if not found and not next_at then
  local page
  found, page = from_line(tonumber(from) or g[G_HP])
  next_at = page and int(page)
end
if not found then
  bulk_save()
  return { 3, next_at or '', 0, 0 }
end
cancel_job(g, t, jobkey)
place(g)
settle(g)
bulk_save()
return { 1, '', tally.ends[COMPLETED], tally.ends[FAILED] }

#!lua
-- group_redrive: moves dead or failed jobs of a group to a redrive of it, which it creates with the first of them.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, source, target, bound,
--   marks (of the jobs to move: - dead, F failed, in this order),
--   codes (separated by commas; empty: all),
--   after (member; empty: from the first),
--   job (empty: all),
--   id, spec, ... (the arguments of group_create from its id on; none when a call continues an open target)
-- RETURNS: {moved, after of the next call (empty: none), 1 if the target exists} or {reason, detail}
--   Reasons of its own: open (the detail is the redrive of the source that has to end first), exists and sealed.
-- INVARIANT: a job moves to one redrive at most; it is pending there in the same step, and the last step seals the redrive,
--   except for the first part of a split group. A group has one open redrive at most, and none is empty.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkunique, bulkchain, bulkcreate

local a, from = named_group(ARGV[3])
local to = redis.call('HGET', K.names, ARGV[4])
local b = to and bulk_group(to)
if not a then return { 'not_found' } end
local makes, open = #ARGV > 9, a[G_REDRIVING] ~= 0 and bulk_group(a[G_REDRIVING])
if makes then
  -- An earlier version did not note which redrive is open.
  if not is_open(open) and is_open(b) and string.find(redis.call('HGET', K.groups, to), '"RedriveOf":"' .. a[G_ID] .. '"', 1, true) then
    open, a[G_REDRIVING] = b, to
    bulk_save()
  end
  if is_open(open) then return { 'open', open[G_ID] } end
  -- A redrive of a split group exists on all its shards before the jobs of any part move.
  if b and not (is_open(b) and b[G_PART] > 0 and b[G_TOTAL] == 0 and b[G_PART] == a[G_PART]) then return { 'exists' } end
  if b then a[G_REDRIVING] = to end
elseif not is_open(b) or a[G_REDRIVING] ~= to then
  return { 'sealed' }
end

local codes, every = {}, ARGV[7] == ''
for code in string.gmatch(ARGV[7], '[^,]+') do codes[code] = true end
local bound, after = tonumber(ARGV[5]), ARGV[8]
local ids, moved, seen, bytes, last, stopped, full = {}, 0, 0, 0, '', false, nil

-- take reads the record of one member of dead, and moves its job if it is selected.
local function take(member, mark)
  local jobkey = string.sub(member, #mark + 1)
  local rec = redis.call('HGET', K.jobs, jobkey) or ''
  bytes = bytes + #rec
  local stop = string.find(rec, '\n', 1, true) or 0
  local code, cost, kind, size = string.match(rec, '^[DF]%d+ %d+ (%S+) (%d+) (%S+) (%d+)')
  if not every and not codes[code or ''] then return end
  if cost and not b then
    b, full = create_group({ unpack(ARGV, 10) })
    if not b then return end
    to = b[G_KEY]
    a[G_REDRIVING] = to
  end
  redis.call('ZREM', K.dead, member)
  if mark == 'F' then a[G_KEPT] = a[G_KEPT] - 1 else a[G_REDRIVEN] = a[G_REDRIVEN] + 1 end
  if not cost then return end
  moved = moved + 1
  local id, payload = string.sub(jobkey, #a[G_KEY] + 2), string.sub(rec, stop + 1 + tonumber(size))
  raise_largest(b, G_LARGEST, b[G_TOTAL] == 0 and not ids[1], #payload + 100)
  if kind == '-' and a[G_TYPE] ~= b[G_TYPE] then kind = a[G_TYPE] end
  if redis.call('HSETNX', K.jobs, to .. '/' .. id, 'P' .. cost .. ' ' .. kind .. ' ' .. int(now_ms()) .. '\n' .. payload) == 1 then ids[#ids + 1] = id end
  if a[G_WHY] == 'purging' then
    redis.call('HDEL', K.jobs, jobkey) -- its outcome is past its retention
  elseif a[G_RESULTS] == 2 and (a[G_TALLY] > 0 or a[G_CLEARED] == a[G_DP] * PAGE + a[G_DN]) then
    if a[G_SEALED] == 1 or a[G_STATUS] > RUNNING then
      redis.call('HDEL', K.jobs, jobkey) -- the record was kept only for a redrive
      a[G_GONE] = a[G_GONE] + 1
    else
      redis.call('HSET', K.jobs, jobkey, 'K\n') -- so that a second submission of the job is recognised
      a[G_SHRUNK] = a[G_SHRUNK] + 1
    end
  else
    redis.call('HSET', K.jobs, jobkey, (mark == 'F' and 'F' or 'R') .. string.sub(rec, 2, stop + tonumber(size)))
  end
end

for mark in string.gmatch(ARGV[6], '.') do
  if mark == '-' then mark = '' end
  local prefix = mark .. from .. '/'
  local begin
  if after == '' then
    begin = '[' .. prefix
  elseif string.sub(after, 1, #prefix) == prefix then
    begin, after = '(' .. after, ''
  end
  -- One more than the bound shows whether others follow.
  local list = ARGV[9] ~= '' and (redis.call('ZSCORE', K.dead, prefix .. ARGV[9]) and { prefix .. ARGV[9] } or {})
    or begin and not stopped and redis.call('ZRANGEBYLEX', K.dead, begin, '(' .. mark .. from .. '0', 'LIMIT', 0, bound - seen + 1) or {}
  for _, member in ipairs(list) do
    -- A step reads a megabyte of records and bound jobs.
    if bytes > 1000000 or seen == bound then
      stopped = true
      break
    end
    seen, last = seen + 1, member
    take(member, mark)
    if full then
      bulk_save()
      return { 'quota', full }
    end
  end
end
if b then
  if ids[1] then
    b[G_TP], b[G_TN] = append_ids(K.order, to, b[G_TP], b[G_TN], ids)
    b[G_ADDED], b[G_TOTAL] = b[G_ADDED] + #ids, b[G_TOTAL] + #ids
    shard.pending = shard.pending + #ids
    tenant_open(bulk_tenant(b[G_TENANT]), #ids)
  end
  b[G_TOUCHED] = now
  if not stopped then
    a[G_REDRIVES] = a[G_REDRIVES] + 1
    if b[G_PART] ~= 1 then seal_group(b) end -- the first part of a split group is sealed when all parts have their jobs
  end
  requeue(b)
  if b[G_QUEUED] == 1 then wake_worker() end
  plan_tend(a, now)
end
bulk_save()
return { moved, stopped and last or '', b and 1 or 0 }

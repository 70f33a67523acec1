#!lua
-- group_redrive: gives some dead jobs of a group to a redrive of it.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside
-- ARGV: now, settings, source, target, bound
-- RETURNS: {moved, left} or {reason}
-- INVARIANT: a dead letter is given to one redrive at most; its job is pending there in the same step, and the last one seals it.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local from = redis.call('HGET', K.names, ARGV[3])
local to = redis.call('HGET', K.names, ARGV[4])
local a, b = from and bulk_group(from), to and bulk_group(to)
if not a or not b then return { 'not_found' } end
if b[G_SEALED] == 1 or b[G_STATUS] ~= CREATED or b[G_OF] == 0 then return { 'sealed' } end
local list = redis.call('ZRANGEBYLEX', K.dead, '[' .. from .. '/', '(' .. from .. '0', 'LIMIT', 0, tonumber(ARGV[5]))
local ids, moved, bytes = {}, 0, 0
for _, jobkey in ipairs(list) do
  if bytes > 1000000 then break end -- of payloads in one step
  moved = moved + 1
  local rec = redis.call('HGET', K.jobs, jobkey) or ''
  local stop = string.find(rec, '\n', 1, true) or 0
  local cost, kind, size = string.match(rec, '^D%d+ %d+ %S+ (%d+) (%S+) (%d+)')
  redis.call('ZREM', K.dead, jobkey)
  a[G_REDRIVEN] = a[G_REDRIVEN] + 1
  if cost then
    local id, payload = id_of(jobkey), string.sub(rec, stop + 1 + tonumber(size))
    bytes = bytes + #payload
    raise(b, G_LARGEST, b[G_TOTAL] == 0, #payload + 80)
    if kind == '-' and a[G_TYPE] ~= b[G_TYPE] then kind = a[G_TYPE] end
    if redis.call('HSETNX', K.jobs, to .. '/' .. id, 'P' .. cost .. ' ' .. kind .. '\n' .. payload) == 1 then ids[#ids + 1] = id end
    if a[G_WHY] == 'purging' then
      redis.call('HDEL', K.jobs, jobkey) -- its outcome is past its retention
    else
      redis.call('HSET', K.jobs, jobkey, 'R' .. string.sub(rec, 2, stop + tonumber(size)))
    end
  end
end
if ids[1] then
  b[G_TP], b[G_TN] = append(K.order, to, b[G_TP], b[G_TN], ids)
  b[G_ADDED], b[G_TOTAL] = b[G_ADDED] + #ids, b[G_TOTAL] + #ids
  shard.pending = shard.pending + #ids
  tenant_open(bulk_tenant(b[G_TENANT]), #ids)
  b[G_TOUCHED] = now
end
local left = redis.call('ZLEXCOUNT', K.dead, '[' .. from .. '/', '(' .. from .. '0')
if left == 0 then
  a[G_REDRIVES] = a[G_REDRIVES] + 1
  seal(b)
end
place(b)
if b[G_QUEUED] == 1 then bell() end
plan(a, now)
bulk_save()
return { moved, left }

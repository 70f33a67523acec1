#!lua
-- group_redrive: gives some dead jobs of a group to a redrive of it.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy
-- ARGV: now, settings, source, target, bound
-- RETURNS: {moved, left} or {reason}
-- INVARIANT: a dead letter is given to one redrive at most; its job is pending there in the same step.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local from = redis.call('HGET', K.names, ARGV[3])
local to = redis.call('HGET', K.names, ARGV[4])
local a, b = from and bulk_group(from), to and bulk_group(to)
if not a or not b then return { 'not_found' } end
if b.sealed == 1 then return { 'sealed' } end
local list = redis.call('ZRANGEBYLEX', K.dead, '[' .. from .. '/', '(' .. from .. '0', 'LIMIT', 0, tonumber(ARGV[5]))
local ids = {}
for _, jobkey in ipairs(list) do
  local rec = redis.call('HGET', K.jobs, jobkey) or ''
  local stop = string.find(rec, '\n', 1, true) or 0
  local cost, kind, size = string.match(rec, '^D%d+ %d+ %S+ (%d+) (%S+) (%d+)\n')
  redis.call('ZREM', K.dead, jobkey)
  a.redriven = a.redriven + 1
  if cost then
    local id, payload = id_of(jobkey), string.sub(rec, stop + 1 + tonumber(size))
    if kind == '-' and a.type ~= b.type then kind = a.type end
    if redis.call('HSETNX', K.jobs, to .. '/' .. id, 'P' .. cost .. ' ' .. kind .. '\n' .. payload) == 1 then ids[#ids + 1] = id end
    redis.call('HSET', K.jobs, jobkey, 'R' .. string.sub(rec, 2, stop + tonumber(size)))
  end
end
if ids[1] then
  b.tp, b.tn = append(K.order, to, b.tp, b.tn, ids)
  b.added, b.total = b.added + #ids, b.total + #ids
  shard.pending = shard.pending + #ids
  tenant_open(bulk_tenant(b.tenant), #ids)
  b.touched = now
  place(b)
  if b.queued == 1 then bell() end
end
local left = redis.call('ZLEXCOUNT', K.dead, '[' .. from .. '/', '(' .. from .. '0')
if left == 0 then a.redrives = a.redrives + 1 end
plan(a, now)
bulk_save()
return { #list, left }

#!lua
-- jobs_add: puts jobs into a group, in their order: all of them or none.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy
-- ARGV: now, settings, group, chunk, offset, last, answer, id, type, cost, run_at, payload, ...
-- RETURNS: {accepted, put in by earlier attempts, then 1 for each job that was there} or {reason, detail}
-- INVARIANT: a job id is unique in its group; a sealed group takes no new id; a chunk that is done keeps its answer.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local gkey = redis.call('HGET', K.names, ARGV[3])
local g = gkey and bulk_group(gkey)
if not g then return { 'not_found' } end
local chunk, last = ARGV[4], ARGV[6] == '1'
local field, before = gkey .. ':' .. chunk, 0
if chunk ~= '' then
  local known = redis.call('HGET', K.chunks, field)
  if known and string.sub(known, 1, 1) == '=' then return { 'done', string.sub(known, 2) } end
  before = tonumber(known or 0)
  if not known then
    if g.sealed == 1 or g.status > RUNNING then return { 'sealed' } end
    g.chunks_open = g.chunks_open + 1
  end
end
local keys, n = {}, 0
for i = 8, #ARGV, 5 do
  n = n + 1
  keys[n] = gkey .. '/' .. ARGV[i]
end
local there, seen, fresh = n > 0 and redis.call('HMGET', K.jobs, unpack(keys)) or {}, {}, 0
for i = 1, n do
  if not there[i] and seen[keys[i]] then there[i] = true end
  seen[keys[i]] = true
  if not there[i] then fresh = fresh + 1 end
end
local reply = { fresh, before }
for i = 1, n do reply[i + 2] = there[i] and 1 or 0 end
local t = bulk_tenant(g.tenant)
if fresh > 0 then
  if g.sealed == 1 or g.status > RUNNING then return { 'sealed' } end
  if set.quota > 0 and t.open + fresh > set.quota then return { 'quota', int(t.open) } end
  local records, ids = {}, {}
  for i = 1, n do
    if not there[i] then
      local a = 8 + (i - 1) * 5
      local kind, run_at = ARGV[a + 1], tonumber(ARGV[a + 3])
      records[#records + 1] = keys[i]
      records[#records + 1] = 'P' .. ARGV[a + 2] .. ' ' .. (kind == '' and '-' or kind) .. '\n' .. ARGV[a + 4]
      if run_at > now then
        wait_until(g, keys[i], run_at, 'S')
      else
        ids[#ids + 1] = ARGV[a]
      end
    end
  end
  redis.call('HSET', K.jobs, unpack(records))
  if ids[1] then
    g.tp, g.tn = append(K.order, gkey, g.tp, g.tn, ids)
    g.added = g.added + #ids
    shard.pending = shard.pending + #ids
  end
  g.total = g.total + fresh
  tenant_open(t, fresh)
  place(g)
  if g.queued == 1 then bell() end
end
g.touched = now
if g.sealed == 0 then redis.call('ZADD', K.agenda, int(now + set.silence), gkey) end
if chunk ~= '' then
  if last then
    g.chunks_open = g.chunks_open - 1
    redis.call('HSET', K.chunks, field, '=' .. ARGV[7])
  else
    redis.call('HSET', K.chunks, field, int(before + fresh))
  end
end
bulk_save()
return reply

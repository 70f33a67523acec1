#!lua
-- jobs_add: adds jobs to a group, in their order: all of them or none.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, chunk, offset, last, answer,
--   most (open jobs of the tenant; 0: as configured),
--   whole (number of jobs that the chunk must have for last to count; 0: any),
--   created (µs, when the group was created; 0: at any time),
--   elsewhere (open jobs of the tenant in other shards),
--   trace (of the submission, as the record has it; empty: none),
--   words (a line for each job: its type or a dash, cost, run_at and expires, in µs, 0: none; an empty line, or none: as the job before),
--   id, payload, ...
-- RETURNS: one of
--   {accepted, added by earlier attempts, 1 if the chunk is done, then which jobs existed, from 0}
--   {'quota', open jobs, setting, new jobs, limit}
--   {reason, detail}
-- INVARIANT: a job id is unique in its group; a sealed group takes no new id; a chunk that is done keeps its answer.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
local created = tonumber(ARGV[10])
if created > 0 and g[G_CREATED] ~= created then return { 'replaced' } end
local chunk, last = ARGV[4], ARGV[6] == '1'
local field, before = gkey .. ':' .. chunk, 0
if chunk ~= '' then
  local known = redis.call('HGET', K.chunks, field)
  if known and string.sub(known, 1, 1) == '=' then return { 'done', string.sub(known, 2) } end
  before = known and tonumber(known) or nil -- nil: this call begins the chunk
  if not known then
    if g[G_SEALED] == 1 or g[G_STATUS] > RUNNING then return { 'sealed' } end
    g[G_CHUNKS_OPEN], g[G_CHUNKS] = g[G_CHUNKS_OPEN] + 1, g[G_CHUNKS] + 1
  end
end
local keys, n, prefix = {}, 0, gkey .. '/'
for i = 14, #ARGV, 2 do
  n = n + 1
  keys[n] = prefix .. ARGV[i]
end
local there, seen, existed = n > 0 and redis.call('HMGET', K.jobs, unpack(keys)) or {}, {}, {}
for i = 1, n do
  local key = keys[i]
  if there[i] or seen[key] then
    there[i], existed[#existed + 1] = true, i - 1
  end
  seen[key] = true
end
local fresh = n - #existed
local whole = tonumber(ARGV[9])
last = last and chunk ~= '' and (whole == 0 or (before or 0) + fresh == whole)
local t = bulk_tenant(g[G_TENANT])
if fresh > 0 then
  if g[G_SEALED] == 1 or g[G_STATUS] > RUNNING then return { 'sealed' } end
  local most, open = tonumber(ARGV[8]), t[T_OPEN] + tonumber(ARGV[11])
  if most > 0 and open + fresh > most then return { 'quota', int(open), 'api_tokens[].max_pending', int(fresh), int(most) } end
  if set.quota > 0 and open + fresh > set.quota then return { 'quota', int(open), 'limits.pending_per_tenant', int(fresh), int(set.quota) } end
  local lines, at, ids, bytes = {}, 0, {}, 0
  local next_words, kind, cost, run_at, expires, head = string.gmatch(ARGV[13], '([^\n]*)\n'), nil, nil, nil, nil, nil
  for i = 1, n do
    local words = next_words and next_words()
    if not words then
      next_words = nil
    elseif words ~= '' then
      kind, cost, run_at, expires = string.match(words, '^(%S+) (%d+) (%d+) (%d+)$')
      run_at, head = tonumber(run_at), nil
    end
    if not there[i] then
      head = head or types.head(g, cost, kind, tonumber(expires), ARGV[12])
      local record = head .. ARGV[13 + 2 * i]
      if #record > bytes then bytes = #record end
      lines[at + 1], lines[at + 2] = keys[i], record
      at = at + 2
      if run_at > now then
        wait_until(g, keys[i], run_at, 'S')
      else
        ids[#ids + 1] = ARGV[12 + 2 * i]
      end
    end
  end
  raise_largest(g, G_LARGEST, g[G_TOTAL] == 0, bytes)
  redis.call('HSET', K.jobs, unpack(lines))
  if ids[1] then
    g[G_TP], g[G_TN] = append_ids(K.order, gkey, g[G_TP], g[G_TN], ids)
    g[G_ADDED] = g[G_ADDED] + #ids
    shard.pending = shard.pending + #ids
  end
  g[G_TOTAL] = g[G_TOTAL] + fresh
  tenant_open(t, fresh)
  requeue(g)
  if g[G_QUEUED] == 1 then wake_worker() end
end
g[G_TOUCHED] = now
if g[G_SEALED] == 0 and g[G_STATUS] == CREATED then
  if g[G_PART] > 0 then plan_tend(g, tend_by(g)) else redis.call('ZADD', K.agenda, int(tend_by(g)), gkey) end
end
if chunk ~= '' then
  if before == nil then
    before = 0
    redis.call('HSET', K.chunks, gkey .. '/' .. int(g[G_CHUNKS]), chunk)
  end
  if last then
    g[G_CHUNKS_OPEN] = g[G_CHUNKS_OPEN] - 1
    redis.call('HSET', K.chunks, field, '=' .. ARGV[7])
  else
    redis.call('HSET', K.chunks, field, int(before + fresh))
  end
end
bulk_save()
return { fresh, before or 0, last and 1 or 0, unpack(existed) }

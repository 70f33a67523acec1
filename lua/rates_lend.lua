#!lua flags=allow-oom
-- rates_lend: changes this shard's leases of the limits that hold over all shards, and reports how it uses them.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings,
--   number (of the call),
--   till (µs at which the leases end; 0: only a report),
--   after (µs beyond till, then the shard has its fixed part),
--   type_limits (as of jobs_pull),
--   name (empty: the global limit; a type, @ and a tenant, or # and a split group),
--   rate, burst, concurrency,
--   tokens (billionths, given in addition),
--   whole_rate, whole_concurrency (the limits of which these are a part), ...
-- RETURNS: a list of
--   code     1: the call counted; 0: its leases had ended; 2: a call with a greater number came before
--   now      µs
--   starts   so far
--   then for the global limit and each type, tenant and split group with limits
--   name     as in ARGV
--   rate, burst, concurrency   of this shard
--   tokens   that the change has left over
--   runs     now
--   need     0: no work; 1: some; 2: work waits for the limit; 3: a job needs the whole burst
--   whole_rate, whole_burst, whole_concurrency
--   shards   those of a group's parts, separated by commas; empty: all
-- INVARIANT: a call counts only if its number is above those of all earlier calls and its leases have not ended, so that a late
--   call changes nothing; a change of shares creates no tokens; a smaller concurrency ends no run.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulkjobs, breakers, bulktypes

local number, left = tonumber(ARGV[3]), {}
local newest = number > tonumber(redis.call('HGET', K.state, 'lent_by') or 0)
local counts = newest and now < tonumber(ARGV[4]) and 1 or 0

-- lend_global changes the lease of the global limit.
local function lend_global(rate, burst, tokens)
  local b = global_limiter()
  local was, before = b.rate, b.burst
  b.rate, b.burst = rate, burst
  left[''] = parts.carry(b, was, before, now, tokens)
  parts.till, parts.phase = tonumber(ARGV[4]), 0
  save_global_limiter(b)
  set.global, set.burst = rate, burst
  redis.call('HSET', K.state, 'lease', table.concat({ int(rate), int(burst), ARGV[4], ARGV[5] }, ' '))
end

-- lend_type changes the lease of a type's limits.
local function lend_type(kind, rate, burst, most, tokens)
  local l = types.limit(kind)
  if l.whole > 0 then
    local b = { rate = rate, burst = burst, at = l.use.at, level = l.use.level }
    if l.meter then b.at, b.level = l.meter.at, l.meter.level end
    left[kind] = parts.carry(b, l.meter and l.rate or 0, l.burst, now, tokens)
    l.use.at, l.use.level, l.use.rate, l.use.limiter = b.at, b.level, rate, set.by
  end
  l.rate, l.burst, l.most = rate, burst, l.whole_most > 0 and most or 0 -- also where more run: none starts in the place of those; the reply counts them
  l.closed = l.whole > 0 and rate == 0 or l.whole_most > 0 and most == 0
  redis.call('HSET', K.state, 'share:' .. kind, table.concat({ int(rate), int(burst), int(l.most), int(l.whole), int(l.whole_most) }, ' '))
  l.use.most = l.most
end

-- lend_tenant changes the lease of a tenant's own limits.
local function lend_tenant(t, rate, burst, most, tokens)
  local name, was, before = '@' .. t[T_NAME], parts.tenant(t)
  if t[T_RATE] > 0 then
    local meter = was > 0 and tenant_limiter(t)
    local b = { rate = rate, burst = burst, at = meter and meter.at or t[T_AT], level = meter and meter.level or t[T_FRAC] }
    left[name] = parts.carry(b, was, before, now, tokens)
    t[T_AT], t[T_FRAC], t[T_RATED], t[T_LIMITER] = b.at, b.level, rate, set.by
  end
  t[T_L_RATE], t[T_L_BURST], t[T_L_CONC] = rate, burst, t[T_CONC] > 0 and most or 0 -- as in lend_type
  t[T_OF_RATE], t[T_OF_CONC] = t[T_RATE], t[T_CONC]
  if rate > was then open_tenant(t) end
  update_full(t)
end

-- lend_group changes the lease of a split group's own limits.
local function lend_group(g, d, rate, burst, most, tokens)
  local till, was = tonumber(ARGV[4]), 0
  if d.rate > 0 then
    local b = group_limiter(g)
    was = b.rate
    left['#' .. g[G_ID]] = parts.change_lease(g, d, b, rate, burst, till, 0, tokens)
  end
  if d.conc > 0 then
    d.l_conc = math.max(1, most) -- as in lend_type
    g[G_CONC] = math.min(d.l_conc, parts.count(d.conc, g[G_PART] - 1, d.n))
  end
  d.own_rate, d.own_conc = g[G_RATE], g[G_CONC]
  parts.keep_lease(g, d)
  if rate > was and g[G_WHY] == 'rate' then open_group(g) end
  requeue(g)
end

-- parted has the split groups whose limits are lent, with the shards of their parts, and by_name the first of them by their limits' names. A
-- part that has ended, or whose limits an earlier version has changed, is left out: without a lease it has its fixed part.
local parted, by_name = {}, {}
do
  local text, kept = redis.call('HGET', K.state, 'parted') or '', {}
  for entry, gkey, shards in string.gmatch(text, '((%S+):(%S+))') do
    local g = bulk_group(gkey)
    local d = g and g[G_STATUS] <= AGGREGATING and parts.lease(g)
    if d and d.rate + d.conc > 0 then
      parted[#parted + 1], kept[#kept + 1] = { g = g, d = d, shards = shards }, entry
      by_name['#' .. g[G_ID]] = parted[#parted]
    end
  end
  kept = table.concat(kept, ' ')
  if counts == 1 and kept ~= text then redis.call('HSET', K.state, 'parted', kept) end
end

if newest then redis.call('HSET', K.state, 'lent_by', int(number)) end
if counts == 1 then
  for i = 7, #ARGV, 7 do
    local kind, rate, burst, most, tokens = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
    if kind == '' then
      lend_global(rate, burst, tokens)
    elseif string.sub(kind, 1, 1) == '@' then
      local t = bulk_tenant(string.sub(kind, 2))
      if t[T_LENT] == 1 and t[T_RATE] == tonumber(ARGV[i + 5]) and t[T_CONC] == tonumber(ARGV[i + 6]) then lend_tenant(t, rate, burst, most, tokens) end
    elseif string.sub(kind, 1, 1) == '#' then
      local p = by_name[kind]
      if p and p.d.rate == tonumber(ARGV[i + 5]) and p.d.conc == tonumber(ARGV[i + 6]) then lend_group(p.g, p.d, rate, burst, most, tokens) end
    else
      local l = types.limits[kind]
      -- An operator may have changed the limit since.
      if l and l.whole == tonumber(ARGV[i + 5]) and l.whole_most == tonumber(ARGV[i + 6]) then lend_type(kind, rate, burst, most, tokens) end
    end
  end
end

local b = global_limiter()
local function waits(meter) return meter.rate == 0 or not strategy.admits(meter, 1) end
local reply = { newest and counts or 2, int(now), int(shard.starts), '', int(b.rate), int(b.burst), 0, int(left[''] or 0), int(shard.inflight),
  shard.queued > 0 and (parts.wide('') and 3 or waits(b) and 2 or 1) or 0, int(set.whole), int(set.whole_burst), 0, '' }
for kind, l in pairs(types.limits) do
  l = types.limit(kind)
  if l.whole > 0 or l.whole_most > 0 then
    local need = (l.use.running > 0 or l.meter and l.meter.owed > 0) and 1 or 0
    for _, list in ipairs({ 'w', 't' }) do
      if redis.call('ZRANGEBYLEX', K.aside, '[' .. list .. kind .. ' ', '(' .. list .. kind .. '!', 'LIMIT', 0, 1)[1] then need = 2 end
    end
    if need > 0 and parts.wide(kind) then need = 3 end
    for _, v in ipairs({ kind, int(l.rate), int(l.burst or 0), l.whole_most > 0 and int(math.max(l.most, l.use.running)) or 0, int(left[kind] or 0), int(l.use.running), need,
      int(l.whole), int(l.whole > 0 and default_burst(l.whole, 0) or 0), int(l.whole_most), '' }) do reply[#reply + 1] = v end
  end
end
for name in string.gmatch(redis.call('HGET', K.state, 'limited') or '', '%S+') do
  local t = bulk_tenant(name)
  local rate, burst = parts.tenant(t)
  local meter = t[T_RATE] > 0 and rate > 0 and tenant_limiter(t)
  local need = t[T_INFLIGHT] > 0 and 1 or 0
  if t[T_N1] + t[T_N2] + t[T_N3] > 0 then need = (t[T_GATE] > 0 or t[T_FULL] == 1 or t[T_RATE] > 0 and (not meter or waits(meter))) and 2 or 1 end
  if need > 0 and parts.wide('@' .. name) then need = 3 end
  for _, v in ipairs({ '@' .. name, t[T_RATE] > 0 and int(rate) or 0, t[T_RATE] > 0 and int(burst) or 0,
    t[T_CONC] > 0 and math.max(parts.slots(t), t[T_INFLIGHT]) or 0, int(left['@' .. name] or 0), t[T_INFLIGHT], need,
    int(t[T_RATE]), t[T_RATE] > 0 and int(default_burst(t[T_RATE], set.file_burst)) or 0, int(t[T_CONC]), '' }) do reply[#reply + 1] = v end
end
for _, p in ipairs(parted) do
  local g, d, name = p.g, p.d, '#' .. p.g[G_ID]
  local meter = d.rate > 0 and group_limiter(g)
  local running = g[G_INFLIGHT] + g[G_READY]
  local full = d.conc > 0 and running >= parts.slots_of(g)
  local need = running > 0 and 1 or 0
  -- Jobs of which none may start, whatever the limits, need nothing.
  local ready = (g[G_FRONT] > 0 or g[G_TAKEN] < g[G_ADDED]) and g[G_PAUSED] == 0 and g[G_EXPIRED] == 0 and g[G_WAITS] == 0 and g[G_BAR] == 0
    and (g[G_SEALED] == 1 or g[G_HELD] == 0) and (g[G_GATE] <= now or g[G_WHY] == 'rate')
  if ready then
    -- A job that has just started may have used up what the lender is to see.
    need = (full or g[G_GATE] > now or now - d.waited < 400000 or meter and waits(meter)) and 2 or 1
    if now - d.wide < 2000000 then need = 3 end
  end
  for _, v in ipairs({ name, meter and int(meter.rate) or 0, meter and int(meter.burst) or 0, d.conc > 0 and int(math.max(parts.slots_of(g), running)) or 0,
    int(left[name] or 0), int(running), need, int(d.rate), meter and int(default_burst(d.rate, 0)) or 0, int(d.conc), p.shards }) do reply[#reply + 1] = v end
end
if counts == 1 then
  if shard.queued > 0 or shard.barred > 0 or shard.aside > 0 then wake_worker() end
  bulk_save()
end
return reply

-- bulkpulls: takes jobs through the fair queue and the limits, and leases them. The scripts that use it pass want, process, types (words; empty:
-- every type) and type_limits (words: type, rate, concurrency, batch, ...) as ARGV[3] to ARGV[6].
local pulls = {}

-- pulls.take starts jobs, and returns the reply of jobs_pull.
function pulls.take()
  open_gates(200)
  local want, dropped, reply = tonumber(ARGV[3]), 0, { 0, 0, 0, 0, 0, '' }
  local global, blocked = global_limiter(), nil
  local taken, turns, settled = 0, 0, follow_policy()
  local room, full = STEP_BYTES, false
  local kinds, mine = read_kinds(ARGV[5])
  local fetched = types.fetch_deferred(kinds, want)
  -- Jobs that the classic pipeline had admitted before the configuration changed.
  for _, jobkey in ipairs(redis.call('LPOP', K.ready, 200) or {}) do
    local g = bulk_group(group_of(jobkey))
    g[G_READY] = g[G_READY] - 1
    if g[G_STATUS] == CANCELLED then
      cancel_job(g, bulk_tenant(g[G_TENANT]), jobkey)
      check_complete(g)
    else
      to_front(g, jobkey)
      requeue(g)
    end
  end

  local flows = set.policy == 'score' and 1 or redis.call('ZCARD', K.levels[1]) + redis.call('ZCARD', K.levels[2]) + redis.call('ZCARD', K.levels[3])
  -- The most jobs of one turn: an even share, and at least four, because a turn costs as much as three jobs.
  local share = math.max(4, math.ceil(want / math.max(1, flows)))

  local limited = shard.tripped > 0 or next(types.limits) -- by type
  -- A turn starts jobs, or gates a group or tenant whose limit is used up. The number of turns is bounded, too.
  types.wake_barred(mine)
  while taken < want and turns < want + 300 and settled and not full do
    turns = turns + 1
    local g, t, level, flow, tag = whose_turn()
    if not g and types.wake_barred(mine) > 0 then g, t, level, flow, tag = whose_turn() end
    if not g and taken == 0 and work.defer_more() then g, t, level, flow, tag = whose_turn() end
    if not g then break end
    local n = math.min(share, want - taken)
    -- Long jobs start one by one where others wait.
    if work.by_time and flows > 1 then n = math.min(n, math.max(1, math.floor(200000 / work.expected(g, t)))) end
    if g[G_CONC] > 0 then n = math.min(n, parts.slots_of(g) - g[G_INFLIGHT] - g[G_READY]) end
    if t[T_CONC] > 0 then n = math.min(n, parts.slots(t) - t[T_INFLIGHT]) end
    -- A job of another type is probably followed by more.
    local list, from_front, ends, size = {}, 0, {}, 0
    if n > 0 then list, from_front, ends, size = peek_jobs(g, work.deferred > 0 and n + math.max(0, math.min(50, work.may_defer(g, flow))) or n) end
    if n <= 0 and t[T_CONC] > 0 then
      dequeue_tenant(t) -- a process of an earlier version has added it
      update_full(t)
    elseif not list[1] then
      -- The group's record counts jobs that no longer exist, which audit reports. The group must not block the others.
      dequeue(g)
      dropped = dropped + 1
    else
      local fit = fit_bytes(g, list, room)
      if fit < #list then
        if taken == 0 then fit = math.max(1, fit) end
        full = true
        if fit == 0 then break end
        for i = #list, fit + 1, -1 do list[i] = nil end
        from_front = math.min(from_front, fit)
      end
      local found = redis.call('HMGET', K.jobs, unpack(list))
      local runs = from_front > 0 and redis.call('HMGET', K.runs, unpack(list, 1, from_front)) or {}
      local own, theirs = group_limiter(g), tenant_limiter(t)
      local jobs, used, cost_sum, stop = {}, 0, 0, nil
      for i, jobkey in ipairs(list) do
        local record = found[i]
        local head = read_head(record)
        local cost, kind = head and head.cost, head and head.kind ~= '' and head.kind or g[G_TYPE]
        local limit = limited and types.limit_of(kind, g[G_TENANT], cost or 1)
        room = room - (head and #record - head.length or 0)
        if #jobs == n then
          break
        elseif not cost then
          used, dropped = i, dropped + 1
        elseif head.expires and now_ms() >= head.expires then
          used, dropped = i, dropped + 1
          wait_until(g, jobkey, now, 'S') -- the dispatcher ends it
        elseif mine and not mine[kind] then
          types.foreign = true
          if work.may_defer(g, flow) <= 0 then
            stop = 'other'
            break
          end
          used = i
          work.count_deferred(g, flow)
          defer_job(g, jobkey, kind)
        elseif not strategy.admits(global, cost) then
          stop, blocked = 'global', strategy.wait(global, cost)
          break
        elseif limit and types.refuses(limit, cost) then
          if limit.batch > 0 and limit.given >= limit.batch then types.spent = true end
          if g[G_UNIFORM] == 1 then
            stop, types.stopped = 'type', limit.kind
            break
          elseif work.may_defer(g, flow) <= 0 then
            stop = 'other'
            break
          end
          used = i
          work.count_deferred(g, flow)
          if types.came[jobkey] then fetched = fetched - 1 end -- it is deferred again
          defer_job(g, jobkey, limit.kind)
        elseif theirs and not strategy.admits(theirs, cost) then
          stop = 'tenant'
          break
        elseif own and not strategy.admits(own, cost) then
          stop = 'group'
          break
        else
          strategy.take(global, cost)
          if theirs then strategy.take(theirs, cost) end
          if own then strategy.take(own, cost) end
          if limit then types.take(limit, cost) end
          used, cost_sum = i, cost_sum + cost
          jobs[#jobs + 1] = { key = jobkey, run = runs[i] and read_run(runs[i]), record = record, head = head, mark = limit and types.run(limit) }
        end
      end
      save_tenant_limiter(t, theirs)
      save_group_limiter(g, own, stop == 'group')
      if used > 0 then pop_jobs(g, used, list, from_front, ends, size) end
      batches.start(g, t, reply, jobs)
      taken = taken + #jobs
      if cost_sum > 0 then charge_turn(g, t, level, flow, tag, cost_sum, #jobs) end
      if jobs[1] then work.count_started(g, flow) end
      if not runnable(g) then dequeue(g) elseif set.policy == 'score' then requeue(g) end
      if t[T_CONC] > 0 then update_full(t) end
      if stop == 'tenant' then
        local wait = strategy.wait(theirs, read_pending(found[used + 1]))
        local till = wait < 0 and now + (set.shards == 1 and 3600000000 or 1000000) or now + wait
        -- By score, groups are queued and not tenants: each is gated at its turn.
        if set.policy == 'score' then gate_group(g, till, 'rate') else gate_tenant(t, till) end
      elseif stop == 'group' then
        local wait = strategy.wait(own, read_pending(found[used + 1]))
        gate_group(g, wait < 0 and now + (own.lease and 1000000 or 3600000000) or now + wait, 'rate')
      elseif stop == 'global' then
        break
      elseif stop == 'type' and runnable(g) then
        types.bar(g, types.stopped)
      end
      if not jobs[1] and (stop == 'other' or used > 0 and work.may_defer(g, flow) <= 0) then
        if work.ends_call(g, flow) then
          work.unfinished = true
          break
        end
        work.pass(g, t, level, flow)
      end
    end
  end
  work.end_round()
  save_global_limiter(global)
  for kind, l in pairs(set.shards > 1 and types.limits or {}) do
    if l.meter then parts.widen(l.meter, kind) end
  end
  shard.taken = shard.taken + taken
  forget_idle()

  -- µs until more jobs may start: until the next slot of the global limit (negative), or until the first gate opens.
  local next_at = 0
  if blocked then
    next_at = blocked < 0 and 0 or -math.max(1, blocked)
  else
    local gate = redis.call('ZRANGE', K.gates, 0, 0, 'WITHSCORES')
    if gate[1] then next_at = math.max(1, tonumber(gate[2]) - now) end
    local wait
    wait, types.startable = types.next(kinds, mine)
    if wait and (next_at == 0 or wait < next_at) then next_at = wait end
  end
  local more = 0
  if types.foreign then wake_worker() end -- for a process with those types
  if not blocked and (taken < want and (fetched > 0 or work.passes > 0) or fetched > 0 and shard.aside > 0) then more = 1 end
  if not blocked and types.spent then
    more = 1
    wake_worker()
  end
  if not blocked and (shard.queued > 0 or types.startable) and (taken >= want or turns == want + 300 or full or not settled or work.unfinished) then
    more = 1
    wake_worker()
  end
  reply[1], reply[2], reply[3], reply[4], reply[5] = int(next_at), more, dropped + work.orphans, work.reordered, int(batches.lease(ARGV[4]))
  batches.report(reply)
  return reply
end

-- bulkacks: ends runs of jobs. The scripts that use it pass as their last arguments, from one position of ARGV on:
--   the fence and the time that the job ran (µs, 0: unknown or not run) of each run, packed as one array
--   the key of each job
--   for each run that did not succeed or has a result, three arguments: its number, from 1; its verdict; its result or error.
--   The verdict is empty for a success, otherwise words: the verdict, its code, the µs to wait, how many tries may fail, and for a failure
--   that counts for a breaker: down or try, ratio, window, probe
-- REPLY ACK_DONE: 'd'  succeeded
-- REPLY ACK_FAILED: 'f'  failed, not retried
-- REPLY ACK_RETRY: 'r'  it waits for its next try
-- REPLY ACK_THROTTLED: 't'  it waits, and no try is spent
-- REPLY ACK_RETURNED: 'b'  back at the front of its group
-- REPLY ACK_DEAD: 'x'  dead
-- REPLY ACK_CANCELLED: 'c'  cancelled
-- REPLY ACK_STALE: 's'  it does not run with that fence; nothing has changed
local acks = { batch = {}, place = {}, stored = {}, waits = {}, plain = { shared = true, refusals = 0 } }

-- acks.read finds the lease of each run: its batch, or else the job's record.
function acks.read(from, numbers)
  local keys, batch, place = {}, acks.batch, acks.place
  for i = 1, #numbers / 2 do
    local b, at = batches.find(ARGV[from + i], numbers[2 * i - 1])
    if b then batch[i], place[i] = b, at else keys[#keys + 1] = ARGV[from + i] end
  end
  for i, text in ipairs(keys[1] and redis.call('HMGET', K.runs, unpack(keys)) or {}) do acks.stored[keys[i]] = text end
end

-- acks.leave takes a job out of its lease, and returns its run; nil where the job does not run with that fence.
function acks.leave(i, jobkey, fence)
  local b, at = acks.batch[i], acks.place[i]
  if b then
    if b.out[at] ~= 48 then return nil end -- acknowledged twice in one call
    batches.leave(b, at)
    return batches.run(b, at)
  end
  local text = acks.stored[jobkey]
  local run = text and read_run(text, int(fence))
  if run and run.held and redis.call('ZREM', K.leases, jobkey) == 1 then
    run.text = text
    return run
  end
end

-- acks.outcome returns the record of a success without a result of a job of a batch. Most jobs of a batch have the same record.
function acks.outcome(about, took)
  local ran = took > 0 and (took - took % 1000) / 1000 or -1
  local known = about.outcomes
  if not known then
    known = {}
    about.outcomes = known
  end
  local record = known[ran]
  if not record then
    record = string.format('S1 %d %d %d ', now_ms(), work.run_times({ took = took }, about.created)) .. about.kind .. '\n'
    known[ran] = record
  end
  return record
end

-- acks.take ends the runs in the arguments from one position on. It returns a string with a code for each; acks.waits has the µs that each
-- throttled job waits.
function acks.take(from)
  local numbers, states, touched, words, waits = cmsgpack.unpack(ARGV[from]), {}, {}, {}, acks.waits
  local n = #numbers / 2
  acks.read(from, numbers)
  for i = from + n + 1, #ARGV, 3 do words[tonumber(ARGV[i])] = i end
  local g, t, before, length = nil, nil, '/', 1 -- of the previous job, which usually belongs to the same group
  local plain, batch, place = shard.watched == 0 and shard.marked == 0, acks.batch, acks.place
  for i = 1, n do
    local jobkey, fence, took, word, b = ARGV[from + i], numbers[2 * i - 1], numbers[2 * i], words[i], batch[i]
    local verdict, code, after, retries, rule, text = 'done', nil, 0, 0, '', ''
    if word then
      text = ARGV[word + 2]
      if ARGV[word + 1] ~= '' then
        verdict, code, after, retries, rule = string.match(ARGV[word + 1], '^(%S+) (%S+) (%d+) (%d+)(.*)$')
        after, retries = tonumber(after), tonumber(retries)
      end
    end
    local simple = plain and b and verdict == 'done' and b.out[place[i]] == 48
    local run = not simple and acks.leave(i, jobkey, fence)
    local state = REPLY_ACK_STALE
    if (simple or run) and string.sub(jobkey, 1, length) ~= before then
      g = bulk_group(group_of(jobkey))
      t, before = bulk_tenant(g[G_TENANT]), g[G_KEY] .. '/'
      touched[g[G_KEY]], length = g, #before
    end
    if simple then
      state = REPLY_ACK_DONE
      batches.leave(b, place[i])
      if took > 0 then work.learn(g, t, took) end
      work.release(g, t, took > 0 and took or nil)
      if g[G_CALLED_OFF] > 0 then work.called_off(g, jobkey) end
      end_job(g, t, jobkey, acks.outcome(b.abouts[place[i]], took) .. text, G_SUCC, acks.plain)
    elseif run then
      run.took = took
      if took > 0 then work.learn(g, t, took) end
      work.release(g, t, (took > 0 or verdict == 'returned') and took or nil)
      if shard.marked > 0 then types.release(run.text, run.mark) end
      if (shard.watched > 0 or rule ~= '') and types.ended(g, jobkey, run, verdict, rule, code) and verdict == 'retry' then verdict = 'throttled' end
      local off = work.called_off(g, jobkey)
      if verdict == 'done' then
        state = REPLY_ACK_DONE
        run.tries = run.tries + 1
        end_job(g, t, jobkey, string.format('S%d %d %d %d ', run.tries, now_ms(), work.run_times(run, run.created)) .. (run.kind or '-') .. '\n' .. text, G_SUCC, run)
      elseif verdict == 'failed' then
        state = REPLY_ACK_FAILED
        run.tries = run.tries + 1
        bury(g, t, jobkey, run, code, text, 'F')
      elseif verdict == 'dead' then
        state = REPLY_ACK_DEAD
        run.tries = run.tries + 1
        bury(g, t, jobkey, run, code, text)
      elseif off then
        state = REPLY_ACK_CANCELLED
        cancel_job(g, t, jobkey)
      elseif verdict == 'returned' then
        state = REPLY_ACK_RETURNED
        if not run.shared then redis.call('HSET', K.runs, jobkey, write_run(run)) end
        to_front(g, jobkey)
      elseif verdict == 'throttled' or verdict == 'held' then
        if run.since == 0 then run.since = now_ms() end
        run.refusals = run.refusals + 1
        g[G_THROTTLES] = g[G_THROTTLES] + 1
        if now - run.since * 1000 > set.max_age then
          state = REPLY_ACK_DEAD
          run.tries = run.tries + 1
          bury(g, t, jobkey, run, 'refused_too_long', text)
        else
          state = REPLY_ACK_THROTTLED
          redis.call('HSET', K.runs, jobkey, write_run(run))
          local wait = after > 0 and after or backoff(t)
          wait_until(g, jobkey, now + wait, 'N')
          waits[#waits + 1] = int(wait)
          -- At most a minute: then other jobs of the group show whether the downstream accepts them again.
          if verdict == 'held' and set.gating == 1 then gate_group(g, now + math.min(wait, 60000000), 'busy') end
        end
      elseif verdict == 'retry' then
        run.tries, run.since = run.tries + 1, 0 -- the run failed; it was not refused
        if run.tries > retries then
          state = REPLY_ACK_DEAD
          bury(g, t, jobkey, run, code, text)
        else
          state = REPLY_ACK_RETRY
          redis.call('HSET', K.runs, jobkey, write_run(run))
          wait_until(g, jobkey, now + math.max(after, backoff(t)), 'N')
        end
      else
        error({ err = 'ERR unknown verdict ' .. verdict })
      end
    end
    states[i] = state
  end
  local queued = shard.queued
  for _, group in pairs(touched) do
    requeue(group)
    work.settle_charge(group)
    check_complete(group)
  end
  if shard.queued > queued then wake_worker() end
  return table.concat(states)
end

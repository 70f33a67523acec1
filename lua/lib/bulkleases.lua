-- bulkleases: the leases of running jobs.
--
-- The jobs that one pull starts share a lease, a batch. A job that has run before, and one that starts alone, has a lease of its own: a member
-- of K.leases, and the process in its record of runs. All jobs of a pull have consecutive fences, and the first names the batch. K.batches has
-- the batches by the end of their lease, and K.runs has two records of each:
--   b<first>   <process>\n, then <gkey>/<id>\n for each job of the pull, or an empty line for a job with a lease of its own. A line
--              @<created, ms> <type> <counted type>\n holds for the jobs after it, up to the next such line; a dash: unknown or none
--   o<first>   a digit for each job: 0 if it runs under this lease, otherwise 1
-- A job whose run fails, is refused or crashes gets a record of its own. So does a job whose lease is renewed without the others.
-- first is a multiple of SMALL, or of LARGE if the pull has started more jobs, so that each fence leads to its batch.
--
-- known has the batches that this call has read, false where there is none; started has the jobs that this call starts, and heads their groups and
-- tenants, with the place of the group's pause in the reply.
local batches = { SMALL = 64, LARGE = 512, known = {}, started = {}, heads = {}, shared = 0 }

-- batches.parse returns the batch of two records.
function batches.parse(first, text, digits)
  local keys, abouts, n, about = {}, {}, 0, nil
  local b = { first = first, keys = keys, abouts = abouts, out = { string.byte(digits, 1, -1) }, left = select(2, string.gsub(digits, '0', '')) }
  for line in string.gmatch(text, '([^\n]*)\n') do
    if not b.owner then
      b.owner = line
    elseif string.byte(line) == 64 then -- @
      local created, kind, mark = string.match(line, '^@(%S+) (%S+) (%S+)$')
      about = { created = created ~= '-' and created or nil, kind = kind, mark = mark ~= '-' and mark or nil }
    else
      n = n + 1
      keys[n], abouts[n] = line, about
    end
  end
  batches.known[first] = b
  return b
end

-- batches.read returns a batch by its first fence; nil where there is none.
function batches.read(first)
  if batches.known[first] == nil then
    local name = int(first)
    local found = redis.call('HMGET', K.runs, 'b' .. name, 'o' .. name)
    if found[1] and found[2] then return batches.parse(first, found[1], found[2]) end
    batches.known[first] = false
  end
  return batches.known[first] or nil
end

-- batches.of returns the batch of a fence; nil where there is none.
function batches.of(fence)
  local last = batches.last
  if last and fence >= last.first and fence < last.first + #last.keys then return last end
  local b = batches.read(fence - fence % batches.SMALL)
  if not b or fence >= b.first + #b.keys then b = batches.read(fence - fence % batches.LARGE) end
  if not b or fence >= b.first + #b.keys then return nil end
  batches.last = b
  return b
end

-- batches.find returns the batch under which a job runs with that fence, and its place there; nil where it does not.
function batches.find(jobkey, fence)
  local b = batches.of(fence)
  if not b then return nil end
  local at = fence - b.first + 1
  if b.keys[at] == jobkey and b.out[at] == 48 then return b, at end
end

-- batches.search returns the batch under which a job runs, its place there and the end of the lease; nil where it does not. It reads all batches.
function batches.search(jobkey)
  local list = redis.call('ZRANGE', K.batches, 0, -1, 'WITHSCORES')
  for from = 1, #list, 400 do
    local names = {}
    for i = from, math.min(from + 399, #list), 2 do names[#names + 1] = 'b' .. list[i] end
    for i, text in ipairs(redis.call('HMGET', K.runs, unpack(names))) do
      local b = text and string.find(text, '\n' .. jobkey .. '\n', 1, true) and batches.read(tonumber(list[from + 2 * i - 2]))
      for at = 1, b and #b.keys or 0 do
        if b.keys[at] == jobkey and b.out[at] == 48 then return b, at, tonumber(list[from + 2 * i - 1]) end
      end
    end
  end
end

-- batches.run returns the run of a job of a batch, as read_run does.
function batches.run(b, at)
  local about = b.abouts[at]
  return { fence = b.first + at - 1, held = true, shared = true, tries = 0, crashes = 0, refusals = 0, since = 0, first = true,
    created = about.created, kind = about.kind, mark = about.mark }
end

-- batches.leave removes a job from its batch.
function batches.leave(b, at)
  b.out[at], b.left, b.changed = 49, b.left - 1, true
end

-- batches.save writes the changes of batches.
function batches.save()
  local changed, gone, names = {}, {}, {}
  for first, b in pairs(batches.known) do
    if b and b.changed then
      local name = int(first)
      if b.left == 0 then
        gone[#gone + 1], gone[#gone + 2], names[#names + 1] = 'b' .. name, 'o' .. name, name
      else
        changed[#changed + 1], changed[#changed + 2] = 'o' .. name, string.char(unpack(b.out))
      end
    end
  end
  write_parts('HSET', K.runs, changed)
  write_parts('HDEL', K.runs, gone)
  write_parts('ZREM', K.batches, names)
end

-- batches.start starts jobs of a group: it counts them and adds them to the reply. batches.lease leases them later.
function batches.start(g, t, reply, jobs)
  local n = #jobs
  if n == 0 then return end
  local started, r = batches.started, #reply
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = g[G_OF] == 1 and g[G_ID] .. '*' or g[G_ID], g[G_TENANT], g[G_TYPE], g[G_LEVEL]
  reply[r + 5], reply[r + 6] = 0, n
  batches.heads[#batches.heads + 1] = { g = g, t = t, at = r + 5 }
  r = r + 6
  for i = 1, n do
    local j = jobs[i]
    local run, record = j.run, j.record
    started[#started + 1] = j
    if run then record = string.format('%d %d ', run.tries + 1, run.crashes) .. record else batches.shared = batches.shared + 1 end
    reply[r + 1], reply[r + 2] = j.key, record
    r = r + 2
  end
  g[G_INFLIGHT], t[T_INFLIGHT], t[T_SERVED] = g[G_INFLIGHT] + n, t[T_INFLIGHT] + n, t[T_SERVED] + n
  shard.inflight, shard.starts = shard.inflight + n, shard.starts + n
  if g[G_STARTED] == 0 then g[G_STARTED], g[G_W_AT], g[G_P_AT] = now, now, now end
  if g[G_STATUS] == DISPATCHED then set_status(g, RUNNING) end
end

-- batches.pause returns for how many µs a limit lets no further job of cost 1 start; -1: until an event, 0: one may start. used reports whether its
-- concurrency is used up, gate is the end of its gate, and b its limiter (nil: none).
function batches.pause(used, gate, b)
  if used then return -1 end
  local wait = b and not strategy.admits(b, 1) and strategy.wait(b, 1) or 0
  return wait < 0 and -1 or math.max(0, gate - now, wait)
end

-- batches.report adds to the reply which limits let no further job start: those of the groups and tenants whose jobs this call has started, and
-- those of the types that it has read.
function batches.report(reply)
  local words, known = {}, {}
  local function held(name, pause)
    if pause ~= 0 then words[#words + 1] = name .. ' ' .. int(pause) end
  end
  for _, head in ipairs(batches.heads) do
    local g, t = head.g, head.t
    if g[G_READY] == 0 then
      reply[head.at] = int(batches.pause(g[G_CONC] > 0 and g[G_INFLIGHT] >= parts.slots_of(g), g[G_GATE], group_limiter(g)))
      if not known[t] then held('@' .. t[T_NAME], batches.pause(t[T_CONC] > 0 and t[T_INFLIGHT] >= parts.slots(t), t[T_GATE], tenant_limiter(t))) end
      known[t] = true
    end
  end
  for name, l in pairs(types.limits) do
    local wait = l.use and types.wait(l, l.met or 1)
    if wait then held(name, wait > 0 and wait or -1) end
  end
  reply[6] = table.concat(words, ' ')
end

-- batches.lease leases the jobs that this call has started, and returns the fence of the first. A fence is at least the time in µs, so that a
-- store that has lost its last writes never reuses a fence.
function batches.lease(owner)
  local started, first = batches.started, math.max(shard.fence + 1, now)
  local n, till, about = #started, int(now + set.lease), nil
  if n == 0 then return 0 end
  local share, lines = batches.shared > 1, { owner }
  local digits = batches.shared < n and {} -- else all are 0
  if share then
    local size = n > batches.SMALL and batches.LARGE or batches.SMALL
    first = first + (-first) % size
  end
  local runs, leases = {}, {}
  for i = 1, n do
    local j = started[i]
    local head, run = j.head, j.run
    if share and not run then
      if head ~= about or j.mark ~= batches.mark then
        about, batches.mark = head, j.mark
        lines[#lines + 1] = '@' .. (head.created or '-') .. ' ' .. head.word .. ' ' .. (j.mark or '-')
      end
      lines[#lines + 1] = j.key
      if digits then digits[i] = '0' end
    else
      run = run or read_run()
      run.fence = first + i - 1
      if head.created then run.created, run.kind = head.created, head.word end
      runs[#runs + 1], runs[#runs + 2] = j.key, write_run(run, j.mark and owner .. ' ' .. j.mark or owner, int(run.fence))
      leases[#leases + 1], leases[#leases + 2] = till, j.key
      lines[#lines + 1] = ''
      if digits then digits[i] = '1' end
    end
  end
  shard.fence = first + n - 1
  if share then
    local name = int(first)
    runs[#runs + 1], runs[#runs + 2] = 'b' .. name, table.concat(lines, '\n') .. '\n'
    runs[#runs + 1], runs[#runs + 2] = 'o' .. name, digits and table.concat(digits) or string.rep('0', n)
    redis.call('ZADD', K.batches, till, name)
  end
  write_parts('HSET', K.runs, runs)
  write_parts('ZADD', K.leases, leases)
  return first
end

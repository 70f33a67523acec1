-- breakers: hold back the jobs of a processor, or of one tenant on it, while its downstream is away.
--
-- A breaker's name is its type, or <type>@<tenant>. 'brk:<name>' in the shard's state has its record and b<name> in K.aside lists it, both only
-- from a first failure on: acks and pulls of a type without failures read and write nothing. shard.watched counts records, shard.tripped
-- those that are open. A record has
--   ratio (thousandths), window (µs), probe   as the process of the last failure is configured
--   at, n, bad, pn, pbad                      answers and failures in this half of the window, and in the one before
--   first, run, job, other                    the unbroken run of failures: since when, of how many jobs, the last two of them
--   who                                       of a type: the tenant whose jobs failed recently, * for several; while open, the one whose
--                                             probe failed last, until another probe succeeds
--   doubt                                     of a tenant: opened because a probe of the type's breaker failed; that breaker's who is the tenant
--   last, code                                the last failure
--   opened, pause, till                       while open: since when, the last pause, and until when nothing starts
--   allow, given, good, failed, since         probes of this round: allowed, started, succeeded, failed; its least fence
-- The results of a round are awaited until till, a lease at most: then those probes are lost, and the round begins again.

-- The ratio applies from MIN_ANSWERS results on; an unbroken run of failures opens a breaker after RUN jobs and a second. A breaker closes after
-- its first round of probes and ROUNDS more, each of twice as many, have passed. A round fails if more of its probes fail than the ratio allows, or
-- all of them: a downstream that fails as rarely as before does not keep its breaker open. At most TENANTS breakers of tenants are open, because a pull
-- checks each that is open, and at most RECORDS breakers have a record.
types.MIN_ANSWERS, types.RUN, types.ROUNDS, types.FIRST_PAUSE, types.TENANTS, types.RECORDS = 20, 3, 3, 1000000, 100, 1000

-- types.breaker returns a breaker's record; nil where there is none.
function types.breaker(name)
  if shard.watched == 0 then return nil end
  if types.breakers[name] == nil then
    local packed = redis.call('HGET', K.state, 'brk:' .. name)
    types.breakers[name] = packed and cmsgpack.unpack(packed) or false
  end
  return types.breakers[name] or nil
end

-- types.tripped returns a breaker that is open; nil where it is not.
function types.tripped(name)
  local b = shard.tripped > 0 and types.breaker(name)
  return b and b.opened > 0 and b or nil
end

-- types.forget deletes a breaker's record, which closes it.
function types.forget(name)
  local b = types.breaker(name)
  types.close_suspect(name, b)
  redis.call('HDEL', K.state, 'brk:' .. name)
  redis.call('ZREM', K.aside, 'b' .. name)
  types.breakers[name], shard.watched = false, shard.watched - 1
  if b.opened > 0 then
    shard.tripped = shard.tripped - 1
    wake_worker()
  end
end

-- types.pause returns for how many microseconds an open breaker starts no job; nil: a job may start.
function types.pause(b)
  if b.till > now then return b.till - now end
  if b.given >= b.allow then b.given, b.good, b.failed = 0, 0, 0 end
  return nil
end

-- types.probe counts a start as a probe of an open breaker.
function types.probe(b)
  if b.given == 0 then b.since = math.max(shard.fence + 1, now) end
  b.given, b.changed = b.given + 1, true
  if b.given >= b.allow then b.till = now + set.lease end
end

-- types.close_suspect closes the breaker of the tenant that an open breaker of a type suspects.
function types.close_suspect(kind, b)
  if b.who == '' then return end
  local pair = kind .. '@' .. b.who
  b.who = ''
  local own = types.tripped(pair)
  if own and own.doubt then types.forget(pair) end
end

-- types.suspect notes the tenant whose probe of a type has failed. Where others have work, that tenant gets a breaker of its own with a longer
-- pause, so that the next probe is another tenant's.
function types.suspect(kind, b, tenant)
  if b.who ~= tenant then types.close_suspect(kind, b) end
  b.who = tenant
  local own = redis.call('ZCARD', K.busy) > 1 and types.open_suspect(kind, b, true)
  if own then own.pause, own.till = b.pause, b.till + math.floor(b.pause / 4) end
end

-- types.open_suspect opens the breaker of the tenant that an open breaker of a type suspects, and returns it; nil where too many are open.
function types.open_suspect(kind, b, doubt)
  local pair = kind .. '@' .. b.who
  local own = types.watch(pair, b, b.code)
  if not own then return nil end
  if own.opened == 0 or doubt then
    own.doubt = (own.opened == 0 or own.doubt) and doubt
    own.n, own.bad = own.n + 1, own.bad + 1
    types.open(pair, own)
  end
  if not doubt then own.doubt = nil end
  return own.opened > 0 and own or nil
end

-- types.watch returns the record for a failure, if necessary a new one; nil where too many are watched. rule has ratio, window and probe.
function types.watch(name, rule, code)
  local b = types.breaker(name)
  if not b then
    if shard.watched >= types.RECORDS then return nil end
    b = { at = now, n = 0, bad = 0, pn = 0, pbad = 0, first = now, run = 0, job = '', other = '', who = '', last = now,
      opened = 0, pause = 0, till = 0, allow = 0, given = 0, good = 0, failed = 0, since = 0 }
    types.breakers[name], shard.watched = b, shard.watched + 1
    redis.call('ZADD', K.aside, 0, 'b' .. name)
  end
  b.ratio, b.window, b.probe = rule.ratio, rule.window, rule.probe
  if now - b.last > b.window then b.run = 0 end
  b.last, b.code, b.changed = now, code, true
  types.turn(b)
  return b
end

-- types.turn begins another half of the window when it is due.
function types.turn(b)
  local age = now - b.at
  if b.opened > 0 or age < b.window / 2 then return end
  if age < b.window then b.pn, b.pbad = b.n, b.bad else b.pn, b.pbad = 0, 0 end
  b.at, b.n, b.bad, b.who = now, 0, 0, ''
end

-- types.open opens a breaker, or has it pause again.
function types.open(name, b)
  if b.opened == 0 then
    if string.find(name, '@', 1, true) and shard.tripped >= types.TENANTS then return end
    b.opened, b.pause, shard.tripped = now, math.min(types.FIRST_PAUSE, b.window), shard.tripped + 1
  else
    b.pause = math.min(2 * b.pause, b.window)
  end
  b.till, b.allow, b.given, b.good, b.failed, b.changed = now + b.pause, b.probe, 0, 0, 0, true
end

-- types.next_round begins the next round, or closes the breaker after the last, when all probes of this round have ended.
function types.next_round(name, b)
  if b.good + b.failed < b.allow then return end
  b.allow, b.given, b.good, b.failed, b.till = 2 * b.allow, 0, 0, 0, now
  if b.allow > b.probe * 2 ^ types.ROUNDS then types.forget(name) else wake_worker() end
end

-- types.count counts a failure of a breaker that is closed.
function types.count(b, jobkey)
  b.n, b.bad = b.n + 1, b.bad + 1
  if b.run == 0 then b.first, b.job, b.other = now, '', '' end
  -- One job that is tried again and again does not open it.
  if jobkey ~= b.job and jobkey ~= b.other then b.run, b.job, b.other = b.run + 1, jobkey, b.job end
end

-- types.failed opens a breaker after a failure where that is due, and reports whether it is open. tenant is the failed job's, for the breaker of
-- a type.
function types.failed(name, b, fence, tenant)
  if b.opened > 0 then
    b.n, b.bad = b.n + 1, b.bad + 1
    if b.given > 0 and fence >= b.since then
      b.failed = (b.failed or 0) + 1 -- an earlier version's record lacks it
      if b.failed >= b.allow or b.failed * 1000 > b.allow * b.ratio then
        types.open(name, b)
        if tenant then types.suspect(name, b, tenant) end
      else
        types.next_round(name, b)
      end
    end
    return true
  end
  local n, bad = b.n + b.pn, b.bad + b.pbad
  if n >= types.MIN_ANSWERS and bad * 1000 > n * b.ratio or b.run >= types.RUN and now - b.first >= 1000000 then types.open(name, b) end
  return b.opened > 0
end

-- types.answered counts a result that is no failure of the breaker. A probe of a type that succeeds after another tenant's has failed shows that
-- the failures are that tenant's: from then on only its own breaker counts them.
function types.answered(name, fence, tenant)
  local b = types.breaker(name)
  if not b then return end
  types.turn(b)
  b.n, b.run, b.changed = b.n + 1, 0, true
  if b.opened == 0 then
    return
  elseif b.given > 0 and fence >= b.since then
    if b.who == tenant or b.who == '*' then
      types.close_suspect(name, b)
    elseif b.who ~= '' then
      types.open_suspect(name, b)
      b.who = ''
    end
    b.good, b.failed = b.good + 1, b.failed or 0
    types.next_round(name, b)
  end
end

-- types.unrun subtracts a probe that did not run.
function types.unrun(name, fence)
  local b = types.tripped(name)
  if not b or b.given == 0 or fence < b.since then return end
  if b.given >= b.allow then b.till = now end
  b.given, b.changed = b.given - 1, true
  wake_worker()
end

-- types.ended counts the end of a run, and reports whether an open breaker explains its failure: then no try is spent. rule is '', or ' down' (the
-- downstream is away) or ' try' (another failed try), followed by ratio, window and probe. Failures of the first kind count for the type, unless
-- they are of one tenant alone while others have work.
function types.ended(g, jobkey, run, verdict, rule, code)
  local kind, fence = run.kind and run.kind ~= '-' and run.kind or g[G_TYPE], tonumber(run.fence)
  local pair = kind .. '@' .. g[G_TENANT]
  local class, ratio, span, probe = string.match(rule, '^ (%a+) (%d+) (%d+) (%d+)$')
  if not class then
    local note = (verdict == 'done' or verdict == 'failed') and types.answered or verdict == 'returned' and types.unrun
    if note then
      note(kind, fence, g[G_TENANT])
      note(pair, fence, g[G_TENANT])
    end
    return false
  end
  rule = { ratio = tonumber(ratio), window = tonumber(span), probe = tonumber(probe) }
  if class == 'down' then
    local b = types.watch(kind, rule, code)
    if not b then return false end
    local own = types.tripped(pair)
    if b.opened > 0 and (not own or b.who == g[G_TENANT]) then return types.failed(kind, b, fence, g[G_TENANT]) end
    if own then
      types.unrun(kind, fence)
    else
      b.who = (b.who == '' or b.who == g[G_TENANT]) and g[G_TENANT] or '*'
      types.count(b, jobkey)
      if b.who == '*' or redis.call('ZCARD', K.busy) < 2 then return types.failed(kind, b, fence) end
    end
  else
    types.answered(kind, fence, g[G_TENANT])
  end
  local b = types.watch(pair, rule, code)
  if not b then return false end
  if b.opened == 0 then types.count(b, jobkey) end
  return types.failed(pair, b, fence)
end

-- types.sweep deletes obsolete breakers, among twenty in turn: closed ones without a failure for a window, and open ones whose probes have
-- succeeded, or that no job needed, for long.
function types.sweep()
  if shard.watched == 0 then return end
  local turn = redis.call('HGET', K.state, 'brk_turn') or ''
  local list = redis.call('ZRANGEBYLEX', K.aside, '(b' .. turn, '(c', 'LIMIT', 0, 20)
  for _, member in ipairs(list) do
    local name = string.sub(member, 2)
    local b = types.breaker(name)
    local quiet = now - math.max(b.last, b.till)
    if quiet > (b.opened > 0 and b.allow == b.probe and 10 or 1) * b.window then types.forget(name) end
  end
  redis.call('HSET', K.state, 'brk_turn', #list == 20 and string.sub(list[20], 2) or '')
end

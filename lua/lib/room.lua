-- room: what every room script begins with. It opens the room's state, keeps
-- room time, and knows where a ticket stands.
--
-- ARGV[1] now (µs; 0: Redis's clock), ARGV[2] epoch and ARGV[3] seq that the
-- caller knows, ARGV[4] the configured policy, integers joined by blanks, in the
-- order of NAMES.

local STATE, LIVE, LINE, PARKED, SEEN, ADMITTED, SESSIONS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local ENDED, GRANTS, REVOKED, FLOW, PENDING, MINUTES, GATEWAYS, SNAPSHOT, AUDIT =
  KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local JOINS = KEYS[17]

local GAP = 5000000      -- a longer silence is taken out of room time
local HOLD = 5000000     -- after such a gap nobody is admitted for as long
local MEMORY = 900000000 -- ended ids are remembered for absence + this

local function num(s) return s and tonumber(s) or 0 end

local str = int

local FIELDS = { 'epoch', 'seq', 'adj', 'tick', 'busy', 'hold', 'fence', 'level', 'at', 'virgin', 'held', 'held_until',
  'born', 'joins', 'admissions', 'claims', 'lapses', 'abandons', 'trimmed', 'minute', 'settle', 'gapped',
  'gone', 'came', 'turn', 'rough', 'swept', 'swept_parked',
  -- the limiter's strategy and rate when it was last used; the rate of an adaptive one and the fence of who set it
  'strategy', 'was', 'target', 'target_fence',
  -- a lottery's opening (wall), till when it stands against an earlier one (wall), the room time at it (0: not yet), and how
  -- many were confirmed before it
  'opens', 'opens_till', 'drawn', 'prequeued',
  -- what is left of the lease of the origin's budget, till when (wall), and its number
  'lease', 'lease_till', 'lease_number' }

local target -- the state's, for policy()

local function load_state()
  local h = redis.call('HMGET', STATE, unpack(FIELDS))
  local s = {}
  for i, f in ipairs(FIELDS) do
    if f == 'epoch' then s[f] = h[i] or '' else s[f] = num(h[i]) end
  end
  target = s.target
  return s
end

local function save_state(s)
  s.seq = s.seq + 1
  local a = {}
  for _, f in ipairs(FIELDS) do
    a[#a + 1] = f
    if f == 'epoch' then a[#a + 1] = s[f] else a[#a + 1] = str(s[f]) end
  end
  redis.call('HSET', STATE, unpack(a))
end

-- keep_time sets s.now, room time. A silence of over GAP and a clock that went
-- back are taken out; of an empty room too, for gateways give places while the
-- store is away.
local function keep_time(s)
  local gap = s.wall - s.tick
  if gap > GAP then
    -- Up to a second passes before gateways notice, and from then on they pack a
    -- millisecond into a microsecond: what they signed sorts before what comes now.
    s.adj = s.adj - gap + 1000000 + math.floor(gap / 1000)
    s.tick = s.wall
    s.gapped = s.wall + s.adj
    -- Those who waited are to be heard first.
    if s.busy == 1 then s.hold = s.wall + s.adj + HOLD end
    s.moved = true
    -- The limiter stood still with the room; its mark is room time.
  elseif gap < 0 then
    s.adj = s.adj - gap
    s.tick = s.wall
    s.moved = true
  end
  -- The limiter's mark is the newest time that a ticket was given: a clock that
  -- went back between two ticks, or a gap behind it, does not undercut it.
  if s.wall + s.adj < s.at then
    s.adj = s.at - s.wall
    s.moved = true
  end
  s.now = s.wall + s.adj
end

-- open returns the state, or nil and the answer when the store is not the one
-- that the caller knows: it then has to call room_restore first.
local function open()
  local s = load_state()
  if s.epoch == '' or s.epoch ~= ARGV[2] or s.seq < tonumber(ARGV[3]) then
    return nil, { 'EPOCH', s.epoch, str(s.seq) }
  end
  s.wall = clock_now(ARGV[1])
  keep_time(s)
  return s
end

-- head is the beginning of every answer.
local function head(s)
  return { 'OK', s.epoch, str(s.seq), str(s.fence), str(s.now), str(s.wall) }
end

-- NAMES are the fields of a policy: rates and burst in thousandths, durations in
-- microseconds, opens, gathers and opens_for in microseconds of Redis's clock, the last being till when the plan says so
-- (0: without an end); strategy is an index of STRATEGIES; lottery, budgeted and closed are 0 or 1; joins and joins_per: so many
-- places of one address in so many microseconds, 0 without a limit; wide likewise, of
-- the network around it; polls: how many a second are advised at most, 0 without a limit.
local NAMES = { 'rate', 'burst', 'max_active', 'head_window', 'min_wait', 'absence', 'claim_window', 'ttl',
  'strategy', 'min_rate', 'max_rate', 'lottery', 'gathers', 'opens', 'budgeted', 'joins', 'joins_per', 'wide', 'wide_per',
  'polls', 'closed', 'opens_for' }
local STRATEGIES = { 'token_bucket', 'leaky_bucket', 'fixed_window', 'adaptive' }

-- policy is the configured one with the operators' live changes over it.
local function policy()
  local p, i = {}, 0
  for v in string.gmatch(ARGV[4], '%-?%d+') do
    i = i + 1
    p[NAMES[i]] = tonumber(v)
  end
  local h = redis.call('HMGET', LIVE, 'rate', 'burst', 'max_active', 'session.ttl', 'paused', 'method', 'enabled')
  if STRATEGIES[p.strategy + 1] == 'adaptive' then
    p.rate = math.min(p.max_rate, math.max(p.min_rate, target > 0 and target or p.rate))
  end
  -- An operator's word holds above what was found.
  if h[1] then p.rate = tonumber(h[1]) end
  if h[2] then p.burst = tonumber(h[2]) end
  -- 0: not configured, it follows the rate.
  if p.burst <= 0 then p.burst = math.max(1000, p.rate) end
  if h[3] then p.max_active = tonumber(h[3]) end
  if h[4] then p.ttl = tonumber(h[4]) end
  p.paused = h[5] == '1'
  p.reject = p.closed == 1
  if h[6] then p.reject, p.lottery = h[6] == 'reject', h[6] == 'lottery' and 1 or 0 end
  return p
end

-- active counts what max_active limits.
local function active(s)
  local n = redis.call('ZCARD', SESSIONS)
  if s.now < s.held_until and s.held > n then n = s.held end
  return n + redis.call('ZCARD', ADMITTED)
end

-- leased is a meter that gives no more than is left of the lease of the origin's budget.
-- A lease ends by this store's clock: where that was set, nobody knows how old it is.
local function leased(s, m)
  if s.wall >= s.lease_till or s.moved then s.lease = 0 end
  local available, take = m.available, m.take
  m.available = function() return math.min(available(), s.lease) end
  m.take = function(n)
    take(n)
    s.lease = s.lease - n
  end
  return m
end

-- take_lease adds a lease, given as 'number units till', to what is left. One that comes
-- late is void, and each counts once, whoever brings it. No lease is for longer than MOST.
local MOST = 1500000
local function take_lease(s, text)
  local number, units, till = string.match(text, '^(%d+) (%d+) (%d+)$')
  if not number or tonumber(number) <= s.lease_number then return end
  s.lease_number = tonumber(number)
  if s.wall >= s.lease_till or s.moved then s.lease = 0 end
  if s.wall >= tonumber(till) then return end
  s.lease = s.lease + tonumber(units)
  s.lease_till = math.min(math.max(s.lease_till, tonumber(till)), s.wall + MOST)
end

-- LEAK: what a leaky bucket lets out at once, µs of the rate; ticks are that far apart when a gateway is busy.
local LEAK = 500000

local function fixed(strategy) return STRATEGIES[strategy + 1] == 'fixed_window' end

-- spent is the level of a limiter that has nothing to give, full that of one that has granted nothing.
local function spent(p)
  local _, most = window(p)
  return fixed(p.strategy) and most or 0
end

local function full(p) return fixed(p.strategy) and 0 or p.burst * 1000000 end

-- begin_limiter gives the room a new limiter at that level; it earns from its first use on.
local function begin_limiter(s, p, level)
  s.level, s.strategy, s.was = level, p.strategy, 0
end

-- meter is the room's limiter, brought to now. available() is how many may be admitted, take(n) takes them, rest() ends a
-- tick, save() puts its state back into s. s.at is the time of its last use: a window's begins before it.
--
-- Until now it earned what it did when it was used last: a rate that was changed since counts from now on. Another strategy
-- begins with nothing to give, but for those whose level is in tokens alike.
local function meter(s, p)
  local b = { level = s.level, at = s.at, rate = s.was, burst = p.burst }
  local strategy = limiter[STRATEGIES[p.strategy + 1]]
  local leaky = STRATEGIES[p.strategy + 1] == 'leaky_bucket'
  if leaky then b.burst = math.max(1000, math.floor(p.rate * LEAK / 1000000)) end
  if fixed(p.strategy) then
    if fixed(s.strategy) then
      b.at = s.at - s.at % window(b)
    else
      b.at, b.level = s.now - s.now % window(p), spent(p)
    end
    b.rate = p.rate
    strategy.refill(b, s.now)
  else
    if fixed(s.strategy) then b.at, b.level = s.now, 0 end
    strategy.refill(b, s.now)
    b.rate = p.rate
  end
  local m = {
    available = function() return strategy.available(b) end,
    take = function(n) if n > 0 then strategy.take(b, n) end end,
    empty = function() b.level = spent(p) end,
    -- Of what nobody took a leaky bucket keeps one: whoever comes to a quiet room is let in at once.
    rest = function() if leaky then b.level = math.min(b.level, TOKEN) end end,
    save = function() s.level, s.at, s.strategy, s.was = b.level, s.now, p.strategy, p.rate end,
    -- ahead is how many will be available in so many µs, if none is taken.
    ahead = function(us)
      local c = {}
      for k, x in pairs(b) do c[k] = x end
      strategy.refill(c, s.now + us)
      return strategy.available(c)
    end,
  }
  return p.budgeted == 1 and leased(s, m) or m
end

-- appetite is how many units of the budget the room could use by its next tick beyond its
-- lease; and how many it likes to hold besides for those who come.
local AHEAD = 350000
local function appetite(s, p)
  if p.budgeted == 0 or p.paused or p.reject or p.gathering or s.now + AHEAD < s.hold then return 0, 0 end
  local most = meter(s, p).ahead(AHEAD)
  if p.max_active > 0 then most = math.min(most, p.max_active - active(s)) end
  local line
  if p.min_wait > 0 then
    line = redis.call('ZCOUNT', LINE, '-inf', str(s.now + AHEAD - p.min_wait))
  else
    line = redis.call('ZCARD', LINE)
  end
  if p.head_window > 0 then line = math.min(line, p.head_window) end
  line = math.min(line, most)
  local want = math.max(0, line - s.lease)
  if p.min_wait > 0 then return want, 0 end
  -- 100 ms of the room's own rate, and twice what came in as much of the last second.
  local lately = num(redis.call('HGET', FLOW, str(math.floor(s.now / 1000000) - 1) .. 'a'))
  return want, math.max(0, math.min(most - line, 1 + math.ceil(p.rate / 10000 + 2 * lately * AHEAD / 1000000)))
end

-- front is how much of the head of a line is exact: 10 s of the rate.
local function front(p) return math.min(20000, math.max(1000, math.floor(p.rate / 100))) end

local function remember(s, p, id)
  redis.call('ZADD', ENDED, 'GT', str(s.now + p.absence + MEMORY), id)
end

-- A grant is what is known of an admitted or ended ticket:
-- what|admitted (wall)|claimed (room time)|client.
local function put_grant(id, what, wall, claimed, client)
  redis.call('HSET', GRANTS, id, what .. '|' .. str(wall) .. '|' .. str(claimed) .. '|' .. client)
end

local function grant(id)
  local v = redis.call('HGET', GRANTS, id)
  if not v then return nil end
  local what, wall, claimed, client = string.match(v, '^(%a+)|(%d+)|(%d+)|(.*)$')
  return { what = what, wall = tonumber(wall), claimed = tonumber(claimed), client = client }
end

local function count_minute(s, what, n)
  redis.call('HINCRBY', MINUTES, str(math.floor(s.wall / 60000000)) .. what, n)
end

local function lapse(s, p, id, g)
  redis.call('ZREM', ADMITTED, id)
  put_grant(id, 'lapsed', g and g.wall or 0, 0, '')
  remember(s, p, id)
  s.lapses = s.lapses + 1
end

-- settled says where a ticket stands that was admitted once: its code, the
-- wall time of its admission and a reason; nil when it never was.
--   A admitted  C active, by this client  L lapsed  E ended  X removed
local function settled(s, p, id, client)
  local g = grant(id)
  if not g then return nil end
  if g.what == 'admitted' then
    local at = redis.call('ZSCORE', ADMITTED, id)
    if at and tonumber(at) + p.claim_window >= s.now then return 'A', g.wall, '' end
    lapse(s, p, id, g)
    return 'L', g.wall, 'lapsed'
  end
  remember(s, p, id)
  if g.what == 'claimed' then
    local till = redis.call('ZSCORE', SESSIONS, id)
    if till and tonumber(till) > s.now and client ~= '' and g.client == client and s.now - g.claimed <= p.claim_window then
      return 'C', g.wall, ''
    end
    return 'E', g.wall, 'claimed'
  end
  if g.what == 'lapsed' then return 'L', g.wall, 'lapsed' end
  if g.what == 'removed' then return 'X', 0, 'removed' end
  return 'E', g.wall, g.what
end

-- Presence is kept beside the line in bags, one for each of 2^17 beginnings of an
-- id (ids are 16 bytes): a record of 21 bytes in place of a member of a second
-- sorted set, which would take 118. A record is the rest of the id, and 7 bytes
-- with the millisecond in which the ticket was heard, times 256, plus the seconds
-- for which it then counts as present.
local RECORD, REST = 21, 14

local function bag_of(id)
  return string.sub(id, 1, 2) .. (string.byte(id, 3) < 128 and '0' or '1'), string.sub(id, 3)
end

-- record finds where the record of an id begins in its bag.
local function record(bag, rest)
  local at = 0
  repeat
    at = string.find(bag, rest, at + 1, true)
  until not at or at % RECORD == 1
  return at
end

-- unrecord drops an id from its bag.
local function unrecord(id)
  local field, rest = bag_of(id)
  local bag = redis.call('HGET', SEEN, field)
  local at = bag and record(bag, rest)
  if not at then return end
  if #bag == RECORD then
    redis.call('HDEL', SEEN, field)
  else
    redis.call('HSET', SEEN, field, string.sub(bag, 1, at - 1) .. string.sub(bag, at + RECORD))
  end
end

-- read_record gives the millisecond in which a ticket was heard, and the seconds
-- for which that counts; 0, 0 where nothing is known.
local function read_record(bag, rest)
  local at = bag and record(bag, rest)
  if not at then return 0, 0 end
  local score = struct.unpack('>I7', bag, at + REST)
  return math.floor(score / 256), score % 256
end

local function last_heard(id)
  local field, rest = bag_of(id)
  return read_record(redis.call('HGET', SEEN, field), rest)
end

-- absent tells whether a ticket that was heard of in that millisecond is given up.
local function absent(s, p, ms) return ms < math.floor((s.now - p.absence) / 1000) - 1000 end

-- keep writes that a waiting ticket was heard of now. bag is what its field holds.
local function keep(s, field, rest, bag, grace)
  local new = rest .. struct.pack('>I7', math.floor(s.now / 1000) * 256 + math.min(255, grace))
  local at = bag and record(bag, rest)
  if at then
    new = string.sub(bag, 1, at - 1) .. new .. string.sub(bag, at + RECORD)
  elseif bag then
    new = bag .. new
  end
  redis.call('HSET', SEEN, field, new)
end

local function out_of_line(id)
  local n = redis.call('ZREM', LINE, id) + redis.call('ZREM', PARKED, id)
  unrecord(id)
  return n
end

-- reap gives up a ticket that was not heard of for absence.
local function reap(s, id)
  out_of_line(id)
  s.abandons = s.abandons + 1
  count_minute(s, 'x', 1)
end

-- neighbours gives up those whose records follow one's own in its bag and who were
-- absent. So the living, each heard of every quarter of absence, find most of the dead.
local function neighbours(s, p, field, rest, bag)
  local n = #bag / RECORD
  if n < 2 then return end
  local at = record(bag, rest)
  if not at then return end
  for _ = 1, math.min(3, n - 1) do
    at = at + RECORD
    if at > #bag then at = 1 end
    local other = string.sub(bag, at, at + REST - 1)
    if absent(s, p, (read_record(bag, other))) then reap(s, string.sub(field, 1, 2) .. other) end
  end
end

-- join puts a ticket into the line. came counts these and gone (room_advance)
-- those that leave it at its head, for the snapshot.
local function join(s, id, ord)
  redis.call('ZADD', LINE, ord, id)
  s.came = s.came + 1
end

-- enrolled is join for one that is heard of for the first time.
local function enrolled(s, id, ord, grace)
  join(s, id, str(ord))
  local field, rest = bag_of(id)
  keep(s, field, rest, redis.call('HGET', SEEN, field), grace)
end

-- waiting finds a ticket in line and renews its presence; un-parks it. Its order,
-- or nil: one that was absent is given up here, should no tick have come to it yet.
local function waiting(s, p, id, grace)
  local ord = redis.call('ZSCORE', LINE, id)
  local parked = not ord and redis.call('ZSCORE', PARKED, id)
  if not ord and not parked then return nil end
  local field, rest = bag_of(id)
  local bag = redis.call('HGET', SEEN, field)
  local ms = read_record(bag, rest)
  if absent(s, p, ms) then
    reap(s, id)
    return nil
  end
  -- Browsers let a hidden page wake once a minute, whatever it is advised: for somebody who was silent for so
  -- long and came back, the next poll is waited for likewise.
  grace = math.max(grace, 15 + math.min(75, math.floor((s.now / 1000 - ms) / 1000)))
  if parked then
    join(s, id, parked)
    redis.call('ZREM', PARKED, id)
  end
  keep(s, field, rest, bag, grace)
  if bag then neighbours(s, p, field, rest, bag) end
  return tonumber(ord or parked)
end

-- An account's ids differ in their last byte, each the next after its former place has ended and while that is
-- remembered. Once there is a second, the first is remembered for a month, longer than any session: where it is not, the
-- others need not be looked for.
local GENERATIONS, MONTH = 32, 2678400000000

-- lives tells of an account's place under one id: the wall time of its admission where it is a session, whether it is
-- alive, and whether the id is free.
local function lives(s, p, id, session, queued, revoked)
  local g = grant(id)
  if num(session) > s.now then return g and g.wall or 0, true end
  if queued then
    if not absent(s, p, (last_heard(id))) then return nil, true end
    reap(s, id) -- no tick has come to it yet
  end
  if g and g.what == 'admitted' then
    if num(redis.call('ZSCORE', ADMITTED, id)) + p.claim_window >= s.now then return nil, true end
    lapse(s, p, id, g)
  end
  return nil, false, not g and not revoked
end

-- place_of finds an account's place by the first of its ids: the id, the wall time of its admission where it is a
-- session, and whether it is alive; else the id for a new one, nil when all are used up.
local function place_of(s, p, base)
  local wall, alive, free = lives(s, p, base, redis.call('ZSCORE', SESSIONS, base),
    redis.call('ZSCORE', LINE, base) or redis.call('ZSCORE', PARKED, base), redis.call('ZSCORE', REVOKED, base))
  if alive or free and not redis.call('ZSCORE', ENDED, base) then return base, wall, alive end
  local ids, stem, from = {}, string.sub(base, 1, 15), string.byte(base, 16)
  for n = 1, GENERATIONS - 1 do ids[n] = stem .. string.char((from + n) % 256) end
  local sessions, revoked = redis.call('ZMSCORE', SESSIONS, unpack(ids)), redis.call('ZMSCORE', REVOKED, unpack(ids))
  local line, parked = redis.call('ZMSCORE', LINE, unpack(ids)), redis.call('ZMSCORE', PARKED, unpack(ids))
  redis.call('ZADD', ENDED, 'GT', str(s.now + MONTH), base)
  local first
  for n, id in ipairs(ids) do
    wall, alive, free = lives(s, p, id, sessions[n], line[n] or parked[n], revoked[n])
    if alive then return id, wall, true end
    if free then first = first or id end
  end
  return first
end

local function count_flow(s, what, n)
  redis.call('HINCRBY', FLOW, str(math.floor(s.now / 1000000)) .. what, n)
end

-- count_admissions adds to the totals, the flow that the ETA reads and the history.
local function count_admissions(s, n)
  if n == 0 then return end
  s.admissions = s.admissions + n
  count_flow(s, 'a', n)
  count_minute(s, 'a', n)
end

-- count_wait files one wait in the history: 4 buckets an octave of seconds.
local function count_wait(s, us)
  if us < 0 then us = 0 end
  count_minute(s, 'w' .. str(math.min(80, math.floor(4 * math.log(1 + us / 1000000) / math.log(2)))), 1)
end

-- audit writes one entry of netstrings (length:bytes): second, who, room,
-- action, then field, before, after for each change; '-' stands for nil.
local function audit(s, who, room, action, changes)
  local a = {}
  local function put(v)
    a[#a + 1] = v and (#v .. ':' .. v) or '-'
  end
  put(str(math.floor(s.wall / 1000000)))
  put(who)
  put(room)
  put(action)
  for _, c in ipairs(changes) do
    put(c[1])
    put(c[2])
    put(c[3])
  end
  redis.call('LPUSH', AUDIT, table.concat(a))
  redis.call('LTRIM', AUDIT, 0, 999)
end

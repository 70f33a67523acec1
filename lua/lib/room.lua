-- room: what every room script starts with: the keys, the room's state, its two clocks, its policy, and the state of a ticket.
--
-- Order time, s.time, is Redis's clock plus lead. It never goes back, and silences stay in it: orders, tokens and every time in a reply
-- are order time. Room time, s.now, is Redis's clock plus adj. It stands still while the store is away, measures how long something has
-- lasted, and leaves Redis only as the axis of a snapshot's flow. age() connects the two.
--
-- ARGV[1] now (µs; 0: Redis's clock), ARGV[2] epoch and ARGV[3] seq of the caller's last reply, ARGV[4] the configured policy, integers
-- joined by blanks, in the order of NAMES.
--
-- Every script replies EPOCH, its epoch and seq, if the store is not the one of the caller's last reply; else OK and reply_head.
-- REPLY OK:    'OK'
-- REPLY EPOCH: 'EPOCH'  the caller has to call room_restore first
--
-- Codes of a ticket:
-- REPLY WAITING:  'W'  in the queue; order is its place
-- REPLY ADMITTED: 'A'  admitted, and may be claimed
-- REPLY ACTIVE:   'C'  a session of this client
-- REPLY LAPSED:   'L'  was admitted, and not claimed in time
-- REPLY ENDED:    'E'  over, for the reason
-- REPLY EXPIRED:  'X'  removed by an operator, from before a reset, or silent for too long
-- REPLY UNKNOWN:  'U'  the store does not hold it
-- REPLY UNKNOWN_CLIENT: '?'  follows the reason claimed where the claim may be repeated and the store does not know by whom

local STATE, LIVE, QUEUE, PARKED, SEEN, ADMITTED, SESSIONS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local ENDED, GRANTS, REVOKED, FLOW, PENDING, MINUTES, GATEWAYS, SNAPSHOT, AUDIT =
  KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local JOINS = KEYS[17]

local GAP = 5000000      -- a longer silence is taken out of room time
local GAPS = 32          -- silences that are remembered; of more, the two oldest become one
local JITTER = 1000000   -- two estimates of order time may differ by as much
local AHEAD = 3600000000 -- an order that is farther ahead is invalid
local HOLD = 5000000     -- nobody is admitted for as long after such a gap
local MEMORY = 900000000 -- ended ids are remembered for absence + this

local function num(s) return s and tonumber(s) or 0 end

local str = int

-- FIELDS are the fields of the state's hash, and of s. virgin is s.fresh_store: 1 while no gateway has restored the room to a new store, 2 when
-- a token has proved that the room is older.
local FIELDS = { 'epoch', 'seq', 'adj', 'lead', 'last', 'gaps', 'reset', 'owed', 'quiet', 'tick', 'busy', 'hold', 'fence', 'level', 'at', 'virgin', 'held', 'held_until',
  'born', 'joins', 'admissions', 'claims', 'lapses', 'abandons', 'trimmed', 'minute', 'settle', 'gapped',
  'gone', 'came', 'turn', 'rough', 'swept', 'swept_parked',
  'returned', -- tickets that were parked and came back since the last tick
  -- the limiter's strategy and rate when it was last used; the rate of an adaptive one and the fence of who set it
  'strategy', 'was', 'target', 'target_fence',
  -- a lottery's opening (wall), until when it stands against an earlier one (wall), the order time at it (0: not yet), and the number of
  -- tickets in its pre-queue
  'opens', 'opens_till', 'drawn', 'prequeued',
  -- until when some of the pre-queue may not have learned that the opening was brought forward, when a pre-queue was last ended without a
  -- draw, and when one with tickets was (room time)
  'unheard', 'disbanded', 'met',
  -- what is left of the lease of the origin's budget, until when (wall), and its number
  'lease', 'lease_till', 'lease_number',
  -- the room time at which the last of the passes that gateways can have made until now ends, whatever the ttl was
  'passes',
  -- how many tickets that left without a poll were remembered, and until when they count (room time)
  'left', 'left_till',
  -- the seq of the last restore: a snapshot that was built before lacks what it brought
  'restored',
  -- the number of revocations: a gateway fetches them where its number differs
  'revokes',
  -- the shortest absence by which ended ids were remembered that may still come back, and when it last was (room time)
  'absence', 'absence_at',
  -- the longest claim window by which a visitor may have been advised to poll, and until when it applies (room time)
  'window', 'window_till',
  -- the last evacuation (order time, and wall); 0: none
  'evacuated', 'evacuated_wall',
  -- the number of changes of records (live.lua)
  'records',
  -- sequence numbers that were never used (seq.lua)
  'skips' }

local TEXTS = { epoch = true, gaps = true, skips = true }

local room_state -- for policy()
local stored -- the values of FIELDS that load_state found, as text; false: none
local stored_seq -- the store's seq; s.seq may be beyond it until save_state

local function load_state()
  stored = redis.call('HMGET', STATE, unpack(FIELDS))
  local s = {}
  for i, f in ipairs(FIELDS) do
    local v = stored[i]
    if TEXTS[f] then s[f] = v or '' else s[f] = v and tonumber(v) or 0 end
  end
  s.fresh_store = s.virgin
  room_state, stored_seq = s, s.seq
  return s
end

-- save_state writes what has changed; seq always has.
local function save_state(s)
  s.seq = s.seq + 1
  stored_seq = s.seq
  s.last = s.time
  s.virgin = s.fresh_store
  local a, n = {}, 0
  for i, f in ipairs(FIELDS) do
    local v, was = s[f], stored[i]
    if not was or v ~= (TEXTS[f] and was or tonumber(was)) then
      a[n + 1], a[n + 2] = f, TEXTS[f] and v or str(v)
      n = n + 2
    end
  end
  redis.call('HSET', STATE, unpack(a))
end

-- Silences are times in which order time ran and room time did not, in s.gaps as 'end:length end:length', in µs, ascending.
local function each_gap(s) return string.gmatch(s.gaps, '(%d+):(%d+)') end

-- add_gap notes a silence of us microseconds that ended at till.
local function add_gap(s, till, us)
  local list = {}
  for t, n in each_gap(s) do list[#list + 1] = { tonumber(t), tonumber(n) } end
  list[#list + 1] = { till, us }
  table.sort(list, function(a, b) return a[1] < b[1] end)
  if #list > GAPS then
    list[2][2] = list[2][2] + list[1][2]
    table.remove(list, 1)
  end
  for i, g in ipairs(list) do list[i] = str(g[1]) .. ':' .. str(g[2]) end
  s.gaps = table.concat(list, ' ')
end

-- age returns how long ago, in room time, a moment of order time was.
local function age(s, time)
  local us = s.time - time
  for t, n in each_gap(s) do
    local till = tonumber(t)
    if till > time then us = us - math.min(tonumber(n), till - time) end
  end
  return us
end

-- room_time returns the room time of a moment of order time.
local function room_time(s, time) return s.now - age(s, time) end

-- before_evacuation reports whether a room time is not after the last evacuation: a session that was claimed then, or an admission of
-- then, has ended by it.
local function before_evacuation(s, at) return s.evacuated > 0 and at <= room_time(s, s.evacuated) end

-- forget_gaps drops silences that ended so long ago that every older token is late, also by an absence that has been changed.
local function forget_gaps(s, p)
  if s.gaps == '' then return end
  local list = {}
  for t, n in each_gap(s) do
    if age(s, tonumber(t)) <= p.absence + MEMORY then list[#list + 1] = t .. ':' .. n end
  end
  s.gaps = table.concat(list, ' ')
end

-- has_lost reports whether the store, whose epoch is that of the caller, lacks writes up to seq.
local function has_lost(s, seq) return s.seq < seq or skipped(s.skips, seq) end

-- keep_time sets s.now, room time, and s.time, order time. A silence of over GAP is taken out of room time, of an empty room too, because
-- gateways give places while the store is away. A clock that went back moves neither.
local function keep_time(s)
  local gap = s.wall - s.tick
  local silence = 0
  if gap > GAP then
    silence = gap - 1000000 -- gateways notice it within a second
    s.adj = s.adj - silence
    s.tick = s.wall
    s.gapped = s.wall + s.adj
    -- Visitors who wait must be able to poll first.
    if s.busy == 1 then s.hold = s.wall + s.adj + HOLD end
    s.moved = true
    -- The limiter stood still with the room, for s.at is room time.
  elseif gap < 0 then
    s.adj = s.adj - gap
    s.tick = s.wall
    s.moved = true
  end
  -- s.at is the newest time of a use of the limiter: room time does not fall below it when a clock goes back between two ticks.
  if s.wall + s.adj < s.at then
    s.adj = s.at - s.wall
    s.moved = true
  end
  s.now = s.wall + s.adj
  if s.wall + s.lead < s.last then s.lead = s.last - s.wall end
  s.time = s.wall + s.lead
  if s.last > 0 and s.time - s.last > SKIP_AFTER then
    local to = math.max(s.seq + 1, s.wall)
    s.skips, s.seq = add_skip(s.skips, s.seq, to), to
  end
  if silence > 0 then add_gap(s, s.time, silence) end
  if s.moved then s.lease = 0 end -- its age is unknown
end

-- reach raises order time to the time up to which a gateway has given orders, as where the store's clock is behind that of the store before
-- it, and reports whether it did. A difference of up to JITTER between estimates of one clock does not count, or such differences would add up.
local function reach(s, time)
  local us = time - s.time
  if us <= JITTER then return false end
  s.lead, s.time = s.lead + us, time
  add_gap(s, time, us)
  return true
end

-- open_room returns the state at now, or nil and the reply EPOCH.
local function open_room()
  local s = load_state()
  if s.epoch == '' or s.epoch ~= ARGV[2] or has_lost(s, tonumber(ARGV[3])) then
    return nil, { REPLY_EPOCH, s.epoch, str(s.seq) }
  end
  s.wall = clock_now(ARGV[1])
  keep_time(s)
  return s
end

-- reply_head returns the beginning of every reply.
local function reply_head(s)
  return { REPLY_OK, s.epoch, str(stored_seq), str(s.fence), str(s.time), str(s.wall) }
end

-- save_and_reply saves the state and returns the reply with the given values.
local function save_and_reply(s, values)
  save_state(s)
  local reply = reply_head(s)
  for i = 1, #values do reply[6 + i] = values[i] end
  return reply
end

-- NAMES are the fields of a policy: rates and burst in thousandths; durations in microseconds; opens, prequeue_at and opens_for in
-- microseconds of Redis's clock, the last being until when the gateway's plan has this opening (0: without an end); strategy an index of
-- STRATEGIES; lottery, budgeted and closed 0 or 1; joins and joins_per: places of one address in a time, 0 without a limit; wide and wide_per:
-- of the network around it; polls: advised polls a second, 0 without a limit; life: of a pass in a room whose gateways keep sessions alive, 0 in
-- other rooms, where it is ttl; sold_out_closes 1 where the room closes while every item of its facts is sold out.
local NAMES = { 'rate', 'burst', 'max_active', 'head_window', 'min_wait', 'absence', 'claim_window', 'ttl',
  'strategy', 'min_rate', 'max_rate', 'lottery', 'prequeue_at', 'opens', 'budgeted', 'joins', 'joins_per', 'wide', 'wide_per',
  'polls', 'closed', 'opens_for', 'life', 'sold_out_closes' }
local STRATEGIES = { 'token_bucket', 'leaky_bucket', 'fixed_window', 'adaptive' }

-- keep_window keeps a longer claim window than today's for visitors who were advised by it.
local function keep_window(p)
  local s = room_state
  if p.claim_window >= s.window then
    s.window, s.window_till = p.claim_window, s.now + p.claim_window
  elseif s.now < s.window_till then
    p.claim_window = s.window
  else
    s.window = p.claim_window
  end
end

-- policy returns the configured policy with the operators' live changes applied.
local function policy()
  local p, i = {}, 0
  for v in string.gmatch(ARGV[4], '%-?%d+') do
    i = i + 1
    p[NAMES[i]] = tonumber(v)
  end
  local h = redis.call('HMGET', LIVE, 'rate', 'burst', 'max_active', 'session.ttl', 'paused', 'method', 'sold_out', 'on_sold_out')
  if STRATEGIES[p.strategy + 1] == 'adaptive' then
    p.rate = math.min(p.max_rate, math.max(p.min_rate, room_state.target > 0 and room_state.target or p.rate))
  end
  p.found = STRATEGIES[p.strategy + 1] == 'adaptive' and not h[1]
  -- An operator's rate takes precedence over the adaptive one.
  if h[1] then p.rate = tonumber(h[1]) end
  if h[2] then p.burst = tonumber(h[2]) end
  -- 0: not configured, it follows the rate.
  if p.burst <= 0 then p.burst = math.max(1000, p.rate) end
  if h[3] then p.max_active = tonumber(h[3]) end
  if h[4] then p.ttl = tonumber(h[4]) end
  p.life = math.max(p.life or 0, p.ttl)
  p.paused = h[5] == '1'
  p.reject, p.live_method = p.closed == 1, h[6]
  if h[6] then p.reject, p.lottery = h[6] == 'reject', h[6] == 'lottery' and 1 or 0 end
  local closes = p.sold_out_closes == 1
  if h[8] then closes = h[8] == 'close' end
  p.sold_out = closes and h[7] == '1'
  if room_state.now then keep_window(p) end
  return p
end

-- active returns the number of sessions and admissions, which max_active limits.
local function active(s)
  local n = redis.call('ZCARD', SESSIONS)
  if s.now < s.held_until and s.held > n then n = s.held end
  return n + redis.call('ZCARD', ADMITTED)
end

-- front returns the size of the queue's front, within which positions are exact: 10 s of the rate.
local function front(p) return math.min(20000, math.max(1000, math.floor(p.rate / 100))) end

-- remember keeps an ended id for as long as a token of it can come back.
local function remember(s, p, id)
  redis.call('ZADD', ENDED, 'GT', str(s.now + p.absence + MEMORY), id)
  if p.absence <= s.absence or s.absence == 0 or s.now - s.absence_at > p.absence then s.absence, s.absence_at = p.absence, s.now end
end

-- absence_of returns for how long a token stays valid after the last reply to its visitor (replied, room time). That is p.absence, but where
-- absence has been raised since, at most the absence of that time plus extra: an ended ticket is not remembered for longer.
local function absence_of(s, p, replied, extra)
  if s.absence == 0 or replied > s.absence_at then return p.absence end
  return math.min(p.absence, s.absence + extra)
end

-- A grant is the record of an admitted or ended ticket: what|admitted|claimed|client
--   admitted  wall time
--   claimed   room time; of a revoked or returned session the end of its passes; of an admitted ticket the time that it has waited in µs,
--             0 where that is not known
--   client    of a returned session the id of its visitor's new place
local function put_grant(id, what, wall, claimed, client)
  redis.call('HSET', GRANTS, id, what .. '|' .. str(wall) .. '|' .. str(claimed) .. '|' .. client)
end

local function grant(id)
  local v = redis.call('HGET', GRANTS, id)
  if not v then return nil end
  local what, wall, claimed, client = string.match(v, '^(%a+)|(%d+)|(%d+)|(.*)$')
  return { what = what, wall = tonumber(wall), claimed = tonumber(claimed), client = client }
end

-- is_claimed reports whether a grant is that of a session that was not ended. A session whose visitor has left (quit) keeps no order.
local function is_claimed(g) return g.what == 'claimed' or g.what == 'quit' end

-- passes_end returns the room time at which the last pass of a revoked or returned session ends; 0: not known.
local function passes_end(g) return g and (g.what == 'revoked' or g.what == 'returned') and g.claimed or 0 end

-- revoke ends a session, and remembers it at least until its last pass has ended, in room time: a ttl that is changed afterwards does not
-- shorten that. till is that time, 0 where it is not known. It returns the time.
local function revoke(s, p, id, till)
  local g = grant(id)
  if till == 0 then till = math.max(s.passes, s.now + p.life) end
  till = math.max(till, passes_end(g))
  s.revokes = s.revokes + 1
  redis.call('ZADD', REVOKED, str(s.now), id)
  redis.call('ZREM', SESSIONS, id)
  redis.call('ZREM', ADMITTED, id)
  put_grant(id, 'revoked', g and g.wall or 0, till, '')
  remember(s, p, id)
  redis.call('ZADD', ENDED, 'GT', str(till), id)
  return till
end

local function count_minute(s, what, n)
  redis.call('HINCRBY', MINUTES, str(math.floor(s.wall / 60000000)) .. what, n)
end

local WAIT_BUCKETS = 80

-- wait_bucket returns the bucket of a time in the queue: four an octave of one second plus that time.
local function wait_bucket(us)
  return math.min(WAIT_BUCKETS, math.floor(4 * math.log(1 + math.max(0, us) / 1000000) / math.log(2)))
end

-- count_octave counts tickets in this minute's history by their time in the queue, with one field for an octave of wait_bucket.
local function count_octave(s, what, bucket, n) count_minute(s, what .. str(math.floor(bucket / 4)), n) end

-- lapse ends an admission that was not claimed in time; g is its grant.
local function lapse(s, p, id, g)
  redis.call('ZREM', ADMITTED, id)
  if g and g.what == 'admitted' and g.claimed > 0 then count_octave(s, 'l', wait_bucket(g.claimed), 1) end
  put_grant(id, 'lapsed', g and g.wall or 0, 0, '')
  remember(s, p, id)
  s.lapses = s.lapses + 1
end

-- take_back takes back an admission that is not claimed, so that the next poll of its visitor enrols the ticket at its order.
local function take_back(id)
  redis.call('ZREM', ADMITTED, id)
  redis.call('HDEL', GRANTS, id)
end

-- admission_state returns the code of a ticket that was admitted once, the wall time of its admission and a reason; nil for a ticket that
-- never was. If another client has claimed the ticket, the reason is claimed, followed by the client that may repeat the claim while it may.
local function admission_state(s, p, id, client)
  local g = grant(id)
  if not g then return nil end
  if g.what == 'admitted' then
    local at = redis.call('ZSCORE', ADMITTED, id)
    if at and before_evacuation(s, tonumber(at)) then
      take_back(id)
      return nil
    end
    if at and tonumber(at) + p.claim_window >= s.now then return REPLY_ADMITTED, g.wall, '' end
    lapse(s, p, id, g)
    return REPLY_LAPSED, g.wall, 'lapsed'
  end
  remember(s, p, id)
  if is_claimed(g) then
    local till = redis.call('ZSCORE', SESSIONS, id)
    if not till or tonumber(till) <= s.now or s.now - g.claimed > p.claim_window then return REPLY_ENDED, g.wall, 'claimed' end
    if client ~= '' and g.client == client then return REPLY_ACTIVE, g.wall, '' end
    return REPLY_ENDED, g.wall, 'claimed' .. (g.client ~= '' and g.client or REPLY_UNKNOWN_CLIENT)
  end
  if g.what == 'lapsed' then return REPLY_LAPSED, g.wall, 'lapsed' end
  if g.what == 'removed' then return REPLY_EXPIRED, 0, 'removed' end
  return REPLY_ENDED, g.wall, g.what
end

local function count_flow(s, what, n)
  redis.call('HINCRBY', FLOW, str(math.floor(s.now / 1000000)) .. what, n)
end

-- count_admissions adds n admissions to the totals, to the flow that wait estimates use, and to the history.
local function count_admissions(s, n)
  if n == 0 then return end
  s.admissions = s.admissions + n
  count_flow(s, 'a', n)
  count_minute(s, 'a', n)
end

-- count_wait adds one wait to the history.
local function count_wait(s, us) count_minute(s, 'w' .. str(wait_bucket(us)), 1) end

-- audit adds an entry to the audit log of the room.
local function audit(s, who, room, action, changes)
  append_audit(AUDIT, str(math.floor(s.wall / 1000000)), who, room, action, changes)
end

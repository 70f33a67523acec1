#!lua flags=allow-oom
-- room_advance: runs one tick of a room: removes what has expired, parks absent visitors, admits present ones and builds the snapshot.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, gap, gateway, revoked_since, most, have_seq, admitted_since, lease, commitment, reached, owed, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, snapshot or '', revocations, admissions, number of the last lease, units left of it,
--   units wanted by the next tick, units to hold besides, the lottery's commitment (lottery.lua: draw_commitment)}. revocations and
--   admissions are lists of id, room time and, of a revocation, the order time at which its passes end (0: not known), of an admission
--   its wall time (0: not known)
-- INVARIANT: never over the limit (P1): the script is atomic, and one a tick does work, however many gateways race; first in, first out (P2).
-- INCLUDE: clock, limiter, seq, room, meter, presence, lottery, joins, sketch, departures

-- gap: µs since the last tick within which this call only reads; most: admissions in one call; have_seq: the seq of the caller's
-- snapshot, which is not sent again; revoked_since, admitted_since: room times from which revocations and admissions are wanted.
-- Every gateway reads the admissions, so that it can restore them to a store that lost them before they were claimed. lease: one of
-- the origin's budget (meter.lua: add_lease), or ''; commitment: the gateway's report on the lottery's commitment (draw_commitment), or '';
-- reached: the order time up to which the gateway has given orders without the store, and owed: how many visitors it has admitted
-- meanwhile, both 0 when the store was there. Then pairs (second, count): arrivals that this gateway signed and that are not enrolled yet.
local s, err = open_room()
if not s then return err end
local reached = reach(s, tonumber(ARGV[13]))
local p = policy()
local opened = update_lottery(s, p)
if p.prequeue and s.prequeued > 0 then save_prequeue(s, p) end
local gap, most, owed = tonumber(ARGV[5]), tonumber(ARGV[8]), tonumber(ARGV[14])

local KEEP = 2592000 -- seconds after which the keys of a room without gateways expire
local RARELY = 60000000 -- a gateway ticks an idle room at least every 30 s (admission/idle.go)

-- Redis creates each function of a script anew with each call. What every call needs once is therefore no function, and the functions of
-- the tick are defined below the return of a call that only reads.

do -- keep the caller's score in GATEWAYS: the room time until which it counts
  local from_now = s.busy == 1 and 5000000 or RARELY
  local counted = num(redis.call('ZSCORE', GATEWAYS, ARGV[6]))
  if counted < s.now + from_now - 1000000 or counted > s.now + from_now then
    redis.call('ZADD', GATEWAYS, str(s.now + from_now), ARGV[6])
  end
end

for i = 15, #ARGV, 2 do -- arrivals
  local n = tonumber(ARGV[i + 1])
  redis.call('HINCRBY', PENDING, ARGV[i], n)
  s.joins = s.joins + n
  s.busy = 1
  count_minute(s, 'j', n)
end

add_lease(s, ARGV[11])
local commitment = draw_commitment(s, ARGV[12])

if owed > 0 then -- charge the limiter for visitors that the caller has admitted while the store was away
  local limit = room_limiter(s, p)
  limit.owe(owed)
  limit.save()
end

-- since lists the members of a set from a time on, including those of exactly that time: the admissions of one tick share it.
local function since(key, from, n)
  return redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, n)
end

-- with_walls adds the wall time of the admission to each id and time of a list.
local function with_walls(list)
  if #list == 0 then return list end
  local ids, out = {}, {}
  for i = 1, #list, 2 do ids[#ids + 1] = list[i] end
  for from = 1, #ids, 1000 do
    local till = math.min(#ids, from + 999)
    for i, g in ipairs(redis.call('HMGET', GRANTS, unpack(ids, from, till))) do
      local at, n = from + i - 1, #out
      out[n + 1], out[n + 2], out[n + 3] = ids[at], list[2 * at], g and string.match(g, '^%a+|(%d+)') or '0'
    end
  end
  return out
end

-- with_ends adds the order time at which the passes end to each id and time of a list of revoked sessions.
local function with_ends(list)
  local out = {}
  for i = 1, #list, 2 do
    local ends = passes_end(grant(list[i]))
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = list[i], list[i + 1], str(ends > 0 and ends - s.now + s.time or 0)
  end
  return out
end

local function reply(snapshot)
  local r = reply_head(s)
  r[7] = snapshot
  r[8] = with_ends(since(REVOKED, ARGV[7], 1000))
  r[9] = with_walls(since(ADMITTED, ARGV[10], most + 1000))
  local wanted, besides = wanted_units(s, p)
  r[10], r[11], r[12], r[13], r[14] = str(s.lease_number), str(s.lease), str(wanted), str(besides), commitment
  return r
end

-- If another gateway has run this tick already, its snapshot is the reply. Two snapshots are too old for that: one from before a silence, which
-- only its own time shows, because keep_time sets the last tick to the end of the silence; and one from before a restore, with which a gateway
-- would lose the silences and the reset that it has just restored.
local former = redis.call('GET', SNAPSHOT)
local built, built_at = string.match(former or '', '^%S+ (%d+) %S+ %d+ %d+ (%d+)')
if built and num(built) >= s.restored and not opened and s.wall - s.tick < gap and math.abs(s.wall - tonumber(built_at)) <= GAP then
  if #ARGV > 14 or ARGV[11] ~= '' or s.moved or owed > 0 or reached then save_state(s) end
  return reply(built == ARGV[9] and '' or former)
end

local last_tick = s.tick + s.adj -- room time
local function ran_since_last() return last_tick < s.now and s.now - last_tick <= GAP end

-- expire removes the sessions, admissions, ended ids and gateways whose time is over. It returns 1 if the next tick finds more of them.
local REAPED = 2000
local function expire()
  local function due(key, till, n)
    return redis.call('ZRANGEBYSCORE', key, '-inf', str(till), 'LIMIT', 0, n)
  end
  local function drop(key, ids)
    if #ids > 0 then redis.call('ZREM', key, unpack(ids)) end
  end
  local over, lapsed, forgotten = due(SESSIONS, s.now, REAPED), due(ADMITTED, s.now - p.claim_window - 1, REAPED / 2), due(ENDED, s.now, REAPED)
  drop(SESSIONS, over)
  for _, id in ipairs(lapsed) do lapse(s, p, id, grant(id)) end
  if #forgotten > 0 then
    redis.call('HDEL', GRANTS, unpack(forgotten))
    drop(ENDED, forgotten)
    drop(REVOKED, forgotten) -- their passes have ended
  end
  drop(GATEWAYS, due(GATEWAYS, s.now, 100))
  return (forget_joins(s, p, REAPED) == REAPED or #over == REAPED or #forgotten == REAPED or #lapsed == REAPED / 2) and 1 or 0
end

-- sweep removes the absent among SWEPT tickets of a set, and counts the others in sample. It returns the position of the next sweep, which
-- lies the golden section of the set farther on, so that any few sweeps in a row are spread evenly. It finds few
-- absent tickets, because tickets at the front and tickets that return are checked elsewhere.
local SWEPT, GOLDEN = 100, 0.6180339887498949
local function sweep(key, position, sample)
  local length = redis.call('ZCARD', key)
  if length == 0 then return 0 end
  local span = length + SWEPT - 1 -- each ticket lies in as many sweeps
  position = position % span
  local from, to = math.max(0, position - SWEPT + 1), position
  if length <= SWEPT then from, to = 0, -1 end
  local list = redis.call('ZRANGE', key, str(from), str(to), 'WITHSCORES')
  local fields = {}
  for i = 1, #list, 2 do fields[#fields + 1] = presence_bucket(list[i]) end
  local buckets = #fields > 0 and redis.call('HMGET', SEEN, unpack(fields)) or {}
  for i = 1, #list, 2 do
    local checked, hold = read_presence(buckets[(i + 1) / 2], string.sub(list[i], 3))
    if absent(s, p, checked, hold) then
      reap(s, list[i])
    elseif sample then
      local overdue = math.max(0, s.now - checked - hold * 1000000)
      count_ticket(sample, age(s, math.max(tonumber(list[i + 1]), s.drawn)) - overdue, overdue > 0)
    end
  end
  return (position + math.floor(GOLDEN * span)) % span
end

-- admissible returns how many visitors may be admitted now.
local function admissible(limit)
  if p.paused or p.reject or p.sold_out or p.prequeue then return 0 end
  local n = limit.available()
  if p.max_active > 0 then n = math.min(n, p.max_active - active(s)) end
  if p.head_window > 0 then n = math.min(n, p.head_window) end
  return math.max(0, math.min(n, most))
end

-- admit moves a ticket from the queue to ADMITTED.
local function admit(id, order)
  local from = math.max(order, s.drawn) -- a drawn ticket has waited since the opening
  redis.call('ZADD', ADMITTED, str(s.now), id)
  put_grant(id, 'admitted', s.wall, math.max(0, s.time - from), '')
  redis.call('ZREM', QUEUE, id)
  forget_presence(id)
  s.gone = s.gone + 1
  count_wait(s, s.time - from)
  return age(s, from)
end

-- admit_front admits up to n present tickets from the front of the queue, and parks or reaps the absent ones on the way. It counts both in
-- passed and returns the number of admissions. PASSED_OVER bounds the absent ones of one tick: a parked ticket counts 1, a reaped one REAP.
local PASSED_OVER, REAP = 4000, 4
local function admit_front(n, passed)
  local admitted, passed_over, parking = 0, 0, false
  while passed_over < PASSED_OVER do
    -- Read one ticket more than may be admitted, so that an absent one is parked even without capacity. Once some were absent, read
    -- many, because absent tickets often lie together.
    local heads = redis.call('ZRANGE', QUEUE, 0, parking and 999 or math.min(99, n - admitted), 'WITHSCORES')
    if #heads == 0 then return admitted end
    local fields, parked, parks = {}, {}, {}
    for i = 1, #heads, 2 do fields[#fields + 1] = presence_bucket(heads[i]) end
    local buckets = redis.call('HMGET', SEEN, unpack(fields))
    local enough = false
    for i = 1, #heads, 2 do
      local id, order = heads[i], tonumber(heads[i + 1])
      local checked, hold = read_presence(buckets[(i + 1) / 2], string.sub(id, 3))
      local overdue = s.now - checked - hold * 1000000
      if overdue > 0 then
        passed_over = passed_over + 1
        count_ticket(passed, age(s, math.max(order, s.drawn)) - overdue, true)
        s.gone = s.gone + 1
        if absent(s, p, checked, hold) then
          reap(s, id)
          passed_over = passed_over + REAP - 1
        else
          parked[#parked + 1] = id
          parks[#parks + 1], parks[#parks + 2] = heads[i + 1], id
        end
      elseif admitted >= n or math.max(order, s.drawn) + p.min_wait > s.time then
        enough = true
        break
      else
        count_ticket(passed, admit(id, order), false)
        admitted = admitted + 1
      end
    end
    if #parked > 0 then
      redis.call('ZREM', QUEUE, unpack(parked))
      redis.call('ZADD', PARKED, unpack(parks))
    end
    if enough then return admitted end
    parking = #parked > 0
  end
  return admitted
end

-- admit_visitors admits what the limiter allows. Nobody is admitted or parked for HOLD after a gap.
local function admit_visitors(passed)
  local limit = room_limiter(s, p)
  local n = s.now >= s.hold and admit_front(admissible(limit), passed) or 0
  for bucket, h in pairs(passed) do
    if h[2] > 0 then count_octave(s, 'h', bucket, h[2]) end
  end
  limit.take(n)
  limit.rest()
  limit.save()
  count_admissions(s, n)
end

-- count_busy_time adds the time in which admission was wanted and possible to the flow, second by second.
local function count_busy_time()
  local t = last_tick
  while t < s.now do
    local second = math.floor(t / 1000000)
    local till = math.min(s.now, (second + 1) * 1000000)
    redis.call('HINCRBY', FLOW, str(second) .. 'b', str(till - t))
    t = till
  end
end

-- trim_flow keeps 900 seconds of the flow.
local function trim_flow(second)
  if second - 900 - s.trimmed > 1000 then
    if redis.call('HLEN', FLOW) > 0 and second - s.trimmed > 1800 then redis.call('DEL', FLOW) end
    s.trimmed = second - 900
  end
  while s.trimmed < second - 900 do
    s.trimmed = s.trimmed + 1
    redis.call('HDEL', FLOW, str(s.trimmed) .. 'a', str(s.trimmed) .. 'b')
  end
end

-- read_pending returns the arrivals that are signed and not enrolled, as 'second:count', and their number. A visitor polls for
-- the first time within a minute; arrivals that have not polled after OVERDUE are dropped.
local OVERDUE = 75000000
local function read_pending()
  local pending, n = {}, 0
  local flat = redis.call('HGETALL', PENDING)
  for i = 1, #flat, 2 do
    local count = tonumber(flat[i + 1])
    if age(s, 1000000 * tonumber(flat[i])) > OVERDUE + 1000000 then
      redis.call('HDEL', PENDING, flat[i])
    elseif count > 0 then
      pending[#pending + 1] = flat[i] .. ':' .. flat[i + 1]
      n = n + count
    end
  end
  return pending, n
end

-- set_busy notes whether the room has visitors: gateways tick an idle room rarely.
local function set_busy(visitors)
  local was = s.busy
  s.busy = (visitors > 0 or p.prequeue and s.prequeued > 0) and 1 or 0
  if was == 1 and s.busy == 0 then
    for _, gateway in ipairs(redis.call('ZRANGE', GATEWAYS, 0, -1)) do redis.call('ZADD', GATEWAYS, str(s.now + RARELY), gateway) end
  end
  if s.busy == 1 then s.quiet = s.now end
end

-- reset_lead sets order time back to Redis's clock if it is ahead by more than MOST_LEAD, and no ticket is left whose order could be
-- compared with others, in the queue or as a token.
local MOST_LEAD = 60000000
local function reset_lead()
  if s.lead > MOST_LEAD and s.evacuated <= s.wall and s.now - s.quiet > p.absence and s.gaps == '' and redis.call('EXISTS', ENDED, JOINS) == 0 and (p.lottery == 0 or s.drawn == 0) then
    s.lead, s.time = 0, s.wall
    s.reset, s.drawn = math.min(s.reset, s.wall), math.min(s.drawn, s.wall)
  end
end

-- write_history notes this minute of the wall clock. The last 1440 minutes are kept; after a long silence old ones go an hour a tick.
local function write_history(length, active_now)
  local minute = math.floor(s.wall / 60000000)
  redis.call('HSET', MINUTES, str(minute) .. 'q', length, str(minute) .. 'r', str(p.rate))
  if p.max_active > 0 then
    redis.call('HSET', MINUTES, str(minute) .. 'm', str(p.max_active), str(minute) .. 'c', active_now)
  end
  if p.found then redis.call('HSET', MINUTES, str(minute) .. 'k', 1) end
  if p.paused and ran_since_last() then count_minute(s, 'p', str(s.now - last_tick)) end
  if s.minute == 0 or s.minute > minute then s.minute = minute - 1 end
  if minute <= s.minute then return end
  local upto = math.min(minute, s.minute + 60)
  for m = s.minute + 1, upto do
    local old, fields = str(m - 1441), {}
    for _, f in ipairs({ 'j', 'a', 'x', 'b', 'q', 'r', 'm', 'c', 'p', 'k', 's' }) do fields[#fields + 1] = old .. f end
    for i = 0, 80 do fields[#fields + 1] = old .. 'w' .. i end
    for i = 0, 20 do fields[#fields + 1], fields[#fields + 2], fields[#fields + 3] = old .. 'h' .. i, old .. 'l' .. i, old .. 'y' .. i end
    redis.call('HDEL', MINUTES, unpack(fields))
  end
  s.minute = upto
  if upto == minute then
    for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, KEEP) end
  end
end

-- pack_queue packs the snapshot's part about the queue: the orders of the front (each as the difference to the one before), the rank
-- sketch behind it and the counts of departures.
local function pack_queue(length, passed, sample, backlog)
  local exact = front(p)
  local heads = redis.call('ZRANGE', QUEUE, 0, exact - 1, 'WITHSCORES')
  local orders, edge = {}, 0
  for i = 2, #heads, 2 do
    local order = tonumber(heads[i])
    orders[i / 2] = order - edge
    edge = order
  end
  local function continue(snapshot)
    local chunks, ends, came, abandons, passed_before, sample_before = {}, {}, 0, 0, {}, {}
    if snapshot then
      local size = tonumber(string.match(snapshot, '^[^\n]* (%d+)\n'))
      local all = cmsgpack.unpack(string.sub(snapshot, -size))
      chunks, ends, came, abandons = unpack(all, 2, 5)
      passed_before, sample_before = all[9] or passed_before, all[10] or sample_before
    end
    chunks, ends = sketch(s, chunks, ends, exact, edge, length, s.came > came, s.abandons > abandons)
    local seconds = (s.now - last_tick) / 1000000
    return chunks, ends, fade(passed, passed_before, seconds, PASSED_FADE, s.returned), fade(sample, sample_before, seconds, SAMPLE_FADE, 0)
  end
  -- A sketch that cannot be read is started again: an error here would end each tick after it has admitted and before the limiter is charged.
  local read, chunks, ends, passed_counts, sample_counts = pcall(continue, former)
  if not read then chunks, ends, passed_counts, sample_counts = continue(nil) end
  s.returned = 0
  local tail = length > exact and tonumber(redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]) or 0
  return heads[2] or '0', cmsgpack.pack({ orders, chunks, ends, s.came, s.abandons, s.gone, tail, s.rough, passed_counts, sample_counts,
    holds(s, heads), s.revokes, backlog })
end

local function read_flow(second)
  local flow = {}
  for sec = second - 9, second do
    local f = redis.call('HMGET', FLOW, str(sec) .. 'a', str(sec) .. 'b')
    flow[#flow + 1] = str(sec) .. ':' .. (f[1] or '0') .. ':' .. (f[2] or '0')
  end
  return flow
end

-- read_live returns the live changes, the last evacuation and the number of changes of records as 'field=value', the message and the version of the changes.
local function read_live()
  local live, message, version = {}, '', '0'
  local changes = redis.call('HGETALL', LIVE)
  for i = 1, #changes, 2 do
    if changes[i] == 'message' then
      message = changes[i + 1]
      live[#live + 1] = 'message=1'
    elseif changes[i] == 'version' then
      version = changes[i + 1]
    elseif changes[i] ~= 'facts' then -- gateways read their text where facts_hash has changed
      live[#live + 1] = changes[i] .. '=' .. changes[i + 1]
    end
  end
  if s.evacuated > 0 then live[#live + 1] = 'evacuated=' .. str(s.evacuated) .. ':' .. str(s.evacuated_wall) end
  if s.records > 0 then live[#live + 1] = 'records=' .. str(s.records) end
  return live, message, version
end

-- write_snapshot writes and returns the snapshot: five lines of text, then the packed part. Go's snapshot.Parse reads it.
local function write_snapshot(second, length, parked, admitted, sessions, pending, oldest, packed)
  local live, message, version = read_live()
  local snapshot = table.concat({
    table.concat({ '4', str(s.seq + 1), s.epoch, str(s.fence), str(s.now), str(s.wall), str(length), str(parked), str(admitted), -- seq: as save_state writes it
      str(sessions), oldest, version, str(s.born), str(redis.call('ZCARD', GATEWAYS)), str(s.joins), str(s.admissions),
      str(s.claims), str(s.lapses), str(s.abandons), str(s.time), s.gaps == '' and '-' or string.gsub(s.gaps, ' ', ','), str(s.reset), str(s.hold),
      str(p.rate), str(s.opens), str(s.drawn), str(s.prequeued), str(s.target), str(#packed) }, ' '),
    table.concat(live, ' '),
    table.concat(pending, ','),
    table.concat(read_flow(second), ','),
    message,
  }, '\n') .. packed
  redis.call('SET', SNAPSHOT, snapshot, 'EX', KEEP)
  return snapshot
end

local second = math.floor(s.now / 1000000)
s.tick = s.wall
s.passes = math.max(s.passes, s.now + p.life)
local backlog = expire()

local sample, passed = {}, {} -- tickets that wait, and those at the front (departures.lua)
s.swept = sweep(QUEUE, s.swept, not p.prequeue and sample)
s.swept_parked = sweep(PARKED, s.swept_parked)
local wanted = redis.call('ZCARD', QUEUE) > 0 and not p.paused and not p.reject and not p.sold_out and not p.prequeue and s.now >= s.hold and ran_since_last()
admit_visitors(passed)
local length, parked, admitted = redis.call('ZCARD', QUEUE), redis.call('ZCARD', PARKED), redis.call('ZCARD', ADMITTED)
local sessions = active(s) - admitted

if wanted then count_busy_time() end
trim_flow(second)
local pending, arriving = read_pending()
set_busy(length + parked + admitted + sessions + arriving)
forget_gaps(s, p)
reset_lead()
write_history(length, admitted + sessions)

local oldest, packed = pack_queue(length, passed, sample, backlog)
local snapshot = write_snapshot(second, length, parked, admitted, sessions, pending, oldest, packed)
save_state(s)
return reply(snapshot)

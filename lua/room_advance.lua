#!lua flags=allow-oom
-- room_advance: one tick: parks absent heads, admits present ones, takes back what lapsed or ended, reaps, and builds the snapshot.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, gap, gateway, cursor, most, have, since, lease, lot, reached, given, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, snapshot or '', revoked ids, times and the ends of their
--   passes (order time) as one list, admitted ids, times and walls of admission likewise, number of the last lease, what is left of it, what is wanted by the next tick, what is liked to be held,
--   what the lottery is drawn by (one_lot)}
-- INVARIANT: never over the limit (1): the script is atomic and one a tick does work, however many gateways race; order (2).
-- INCLUDE: clock, limiter, room, meter, presence, lottery, joins, sketch, leavers

-- gap: µs since the last tick under which this call only reads; cursor: room
-- time from which revoked sessions are wanted; most: admissions in one call;
-- have: the seq of the snapshot that the caller holds (it is not sent again);
-- since: room time from which admissions are wanted, so that every gateway can
-- give them back to a store that lost them before they were claimed; lease: one of the
-- origin's budget (meter.lua: take_lease), or '';
-- lot: what this gateway says of the lottery's commitment (lottery.lua: one_lot), or '';
-- reached: the order time up to which it has given orders without the store, and given: how many it has let in meanwhile, both 0
-- when the store was there.
-- Then pairs (second, count): arrivals that this gateway signed and that are not enrolled yet.
local s, err = open()
if not s then return err end
local reached = reach(s, tonumber(ARGV[13]))
local p = policy()
local opened = draw(s, p)
if p.gathering and s.prequeued > 0 then count_lots(s, p) end
local gap, most = tonumber(ARGV[5]), tonumber(ARGV[8])
-- A room that no gateway has looked at for 30 days is gone; its keys have no other owner.
local KEEP = 2592000
-- By as much order time may be ahead of Redis's clock for good.
local RESET = 60000000

-- A gateway counts until its score, in room time. It ticks an idle room at least every 30 s (admission/idle.go).
local RARELY = 60000000
do
  local from_now = s.busy == 1 and 5000000 or RARELY
  local counted = num(redis.call('ZSCORE', GATEWAYS, ARGV[6]))
  if counted < s.now + from_now - 1000000 or counted > s.now + from_now then
    redis.call('ZADD', GATEWAYS, str(s.now + from_now), ARGV[6])
  end
end

for i = 15, #ARGV, 2 do
  local n = tonumber(ARGV[i + 1])
  redis.call('HINCRBY', PENDING, ARGV[i], n)
  s.joins = s.joins + n
  s.busy = 1
  count_minute(s, 'j', n)
end

-- since lists a set from a time on, with those of that very time again: a tick gives most of them the same at most.
local function since(key, from, n)
  return redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, n)
end

-- admissions adds to ids and times the wall time of each, which no clock of today has.
local function admissions(list)
  if #list == 0 then return list end
  local ids, out = {}, {}
  for i = 1, #list, 2 do ids[#ids + 1] = list[i] end
  for from = 1, #ids, 1000 do
    local till = math.min(#ids, from + 999)
    for i, g in ipairs(redis.call('HMGET', GRANTS, unpack(ids, from, till))) do
      local at = from + i - 1
      out[#out + 1], out[#out + 2], out[#out + 3] = ids[at], list[2 * at], g and string.match(g, '^%a+|(%d+)') or '0'
    end
  end
  return out
end

-- revocations adds to ids and times the order time at which the passes of each have ended; 0: not known.
local function revocations(list)
  local out = {}
  for i = 1, #list, 2 do
    local ends = passes_end(grant(list[i]))
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = list[i], list[i + 1], str(ends > 0 and ends - s.now + s.time or 0)
  end
  return out
end

take_lease(s, ARGV[11])
local lot = one_lot(s, ARGV[12])

local function answer(text)
  local a = head(s)
  a[7] = text
  a[8] = revocations(since(REVOKED, ARGV[7], 1000))
  a[9] = admissions(since(ADMITTED, ARGV[10], most + 1000))
  local want, liked = appetite(s, p)
  a[10], a[11], a[12], a[13], a[14] = str(s.lease_number), str(s.lease), str(want), str(liked), lot
  return a
end

local given = tonumber(ARGV[14])
if given > 0 then
  local bucket = meter(s, p)
  bucket.owe(given)
  bucket.save()
end

local snapshot = redis.call('GET', SNAPSHOT)
local built, at = string.match(snapshot or '', '^%S+ (%d+) %S+ %d+ %d+ (%d+)')
-- After a silence the last tick counts as now (keep_time), but what the room looked like before it is of no use. Neither is
-- what it looked like before a restore: a gateway would forget the silences and the reset that it has just given back.
if at and num(built) >= s.restored and not opened and s.wall - s.tick < gap and math.abs(s.wall - tonumber(at)) <= GAP then
  if #ARGV > 14 or ARGV[11] ~= '' or s.moved or given > 0 or reached then save_state(s) end
  return answer(built == ARGV[9] and '' or snapshot)
end

local before = s.tick + s.adj -- room time of the last tick
s.tick = s.wall
s.passes = math.max(s.passes, s.now + p.ttl)

local backlog -- 1: the next tick finds more to drop
do
  -- due returns the due members of a set ordered by time, a bounded number.
  local function due(key, till, n)
    return redis.call('ZRANGEBYSCORE', key, '-inf', str(till), 'LIMIT', 0, n)
  end

  local function drop(key, ids)
    if #ids > 0 then redis.call('ZREM', key, unpack(ids)) end
  end

  local REAPED = 2000
  local over, lapsed, forget = due(SESSIONS, s.now, REAPED), due(ADMITTED, s.now - p.claim_window - 1, REAPED / 2), due(ENDED, s.now, REAPED)
  drop(SESSIONS, over)
  for _, id in ipairs(lapsed) do lapse(s, p, id, grant(id)) end
  if #forget > 0 then
    redis.call('HDEL', GRANTS, unpack(forget))
    drop(ENDED, forget)
    drop(REVOKED, forget) -- their passes have ended
  end
  drop(GATEWAYS, due(GATEWAYS, s.now, 100))
  backlog = (forget_joins(s, p, REAPED) == REAPED or #over == REAPED or #forget == REAPED or #lapsed == REAPED / 2) and 1 or 0
end

-- sweep looks through SWEPT tickets of a set for those that were not heard of for
-- absence, and counts the others in sample. It returns where the next tick looks: the golden section of the
-- set farther on, so that ticks come to all parts of it, and any few of them to parts that lie evenly.
-- Few are left to it: whoever comes to the head or back is looked at there.
local SWEPT, GOLDEN = 100, 0.6180339887498949
local function sweep(key, where, sample)
  local length = redis.call('ZCARD', key)
  if length == 0 then return 0 end
  local span = length + SWEPT - 1 -- each ticket lies in as many sweeps
  where = where % span
  local from, to = math.max(0, where - SWEPT + 1), where
  if length <= SWEPT then from, to = 0, -1 end
  local list = redis.call('ZRANGE', key, str(from), str(to), 'WITHSCORES')
  local fields = {}
  for i = 1, #list, 2 do fields[#fields + 1] = bag_of(list[i]) end
  local bags = #fields > 0 and redis.call('HMGET', SEEN, unpack(fields)) or {}
  for i = 1, #list, 2 do
    local checked, hold = read_record(bags[(i + 1) / 2], string.sub(list[i], 3))
    if absent(s, p, checked, hold) then
      reap(s, list[i])
    elseif sample then
      local late = math.max(0, s.now - checked - hold * 1000000)
      count_ticket(sample, age(s, math.max(tonumber(list[i + 1]), s.drawn)) - late, late > 0)
    end
  end
  return (where + math.floor(GOLDEN * span)) % span
end
local sample = {} -- of those that wait, for leavers.lua
s.swept = sweep(LINE, s.swept, not p.gathering and sample)
s.swept_parked = sweep(PARKED, s.swept_parked)

local bucket = meter(s, p)
local passed = {} -- heads of this tick, for leavers.lua

-- PASSED_OVER bounds what one tick spends on heads that are absent: a head that is parked counts 1, one that is given up REAP.
local PASSED_OVER, REAP = 4000, 4

-- Nobody is parked while the room holds its breath after a gap.
local function admit()
  if s.now < s.hold then return 0 end
  local k = 0
  if not p.paused and not p.reject and not p.gathering then
    k = bucket.available()
    if p.max_active > 0 then k = math.min(k, p.max_active - active(s)) end
    if p.head_window > 0 then k = math.min(k, p.head_window) end
    k = math.max(0, math.min(k, most))
  end
  local n, looked, parking = 0, 0, false
  while looked < PASSED_OVER do
    -- One more than may be admitted, so that an absent head is parked even
    -- when there is no capacity; many once some are absent, for they often lie together.
    local heads = redis.call('ZRANGE', LINE, 0, parking and 999 or math.min(99, k - n), 'WITHSCORES')
    if #heads == 0 then return n end
    local fields, parked, parks = {}, {}, {}
    for i = 1, #heads, 2 do fields[#fields + 1] = bag_of(heads[i]) end
    local bags = redis.call('HMGET', SEEN, unpack(fields))
    local enough = false
    for i = 1, #heads, 2 do
      local id, ord = heads[i], tonumber(heads[i + 1])
      local checked, hold = read_record(bags[(i + 1) / 2], string.sub(id, 3))
      if checked + hold * 1000000 < s.now then
        looked = looked + 1
        count_ticket(passed, age(s, math.max(ord, s.drawn)) - (s.now - checked - hold * 1000000), true)
        s.gone = s.gone + 1
        if absent(s, p, checked, hold) then
          reap(s, id)
          looked = looked + REAP - 1
        else
          parked[#parked + 1] = id
          parks[#parks + 1], parks[#parks + 2] = heads[i + 1], id
        end
      elseif n >= k or math.max(ord, s.drawn) + p.min_wait > s.time then -- a lot waits since the opening
        enough = true
        break
      else
        redis.call('ZADD', ADMITTED, str(s.now), id)
        local from = math.max(ord, s.drawn) -- whoever was drawn has waited from the opening on
        put_grant(id, 'admitted', s.wall, math.max(0, s.time - from), '')
        redis.call('ZREM', LINE, id)
        unrecord(id)
        s.gone = s.gone + 1
        count_wait(s, s.time - from)
        count_ticket(passed, age(s, from), false)
        n = n + 1
      end
    end
    if #parked > 0 then
      redis.call('ZREM', LINE, unpack(parked))
      redis.call('ZADD', PARKED, unpack(parks))
    end
    if enough then return n end
    parking = #parked > 0
  end
  return n
end

local had = redis.call('ZCARD', LINE)
local n = admit()
for b, h in pairs(passed) do
  if h[2] > 0 then count_octave(s, 'h', b, h[2]) end
end
bucket.take(n)
bucket.rest()
bucket.save()
count_admissions(s, n)
local length = redis.call('ZCARD', LINE)
local parked = redis.call('ZCARD', PARKED)
local admitted = redis.call('ZCARD', ADMITTED)
local sessions = active(s) - admitted

-- Time in which admission was wanted and possible goes to the flow, second by second.
if had > 0 and not p.paused and not p.reject and not p.gathering and s.now >= s.hold and before < s.now and s.now - before <= GAP then
  local t = before
  while t < s.now do
    local sec = math.floor(t / 1000000)
    local till = math.min(s.now, (sec + 1) * 1000000)
    redis.call('HINCRBY', FLOW, str(sec) .. 'b', str(till - t))
    t = till
  end
end
local second = math.floor(s.now / 1000000)
if second - 900 - s.trimmed > 1000 then
  if redis.call('HLEN', FLOW) > 0 and second - s.trimmed > 1800 then redis.call('DEL', FLOW) end
  s.trimmed = second - 900
end
while s.trimmed < second - 900 do
  s.trimmed = s.trimmed + 1
  redis.call('HDEL', FLOW, str(s.trimmed) .. 'a', str(s.trimmed) .. 'b')
end

-- Who was told to poll first after a minute is overdue by now.
local OVERDUE = 75000000
local pending, ahead = {}, 0
local flat = redis.call('HGETALL', PENDING)
for i = 1, #flat, 2 do
  local sec, count = tonumber(flat[i]), tonumber(flat[i + 1])
  if age(s, 1000000 * sec) > OVERDUE + 1000000 then
    redis.call('HDEL', PENDING, flat[i])
  elseif count > 0 then
    pending[#pending + 1] = flat[i] .. ':' .. flat[i + 1]
    ahead = ahead + count
  end
end

local was = s.busy
s.busy = (length + parked + admitted + sessions + ahead > 0 or p.gathering and s.prequeued > 0) and 1 or 0
if was == 1 and s.busy == 0 then -- from now on gateways tick rarely
  for _, g in ipairs(redis.call('ZRANGE', GATEWAYS, 0, -1)) do redis.call('ZADD', GATEWAYS, str(s.now + RARELY), g) end
end
forget_gaps(s, p)
if s.busy == 1 then s.quiet = s.now end
if s.lead > RESET and s.now - s.quiet > p.absence and s.gaps == '' and redis.call('EXISTS', ENDED, JOINS) == 0 and (p.lottery == 0 or s.drawn == 0) then
  -- Nobody is left, in line or with a token, whose order could be compared with others: the next ones are Redis's clock again.
  s.lead, s.time = 0, s.wall
  s.reset, s.drawn = math.min(s.reset, s.wall), math.min(s.drawn, s.wall)
end

-- History, by minutes of the wall clock; the last 1440 are kept.
local minute = math.floor(s.wall / 60000000)
redis.call('HSET', MINUTES, str(minute) .. 'q', length, str(minute) .. 'r', str(p.rate))
if p.max_active > 0 then
  redis.call('HSET', MINUTES, str(minute) .. 'm', str(p.max_active), str(minute) .. 'c', admitted + sessions)
end
if p.found then redis.call('HSET', MINUTES, str(minute) .. 'k', 1) end
if p.paused and before < s.now and s.now - before <= GAP then count_minute(s, 'p', str(s.now - before)) end
if s.minute == 0 or s.minute > minute then s.minute = minute - 1 end
if minute > s.minute then
  -- After a long silence the old ones go an hour a tick.
  local upto = math.min(minute, s.minute + 60)
  for m = s.minute + 1, upto do
    local old, fields = str(m - 1441), {}
    for _, f in ipairs({ 'j', 'a', 'x', 'b', 'q', 'r', 'm', 'c', 'p', 'k', 's' }) do fields[#fields + 1] = old .. f end
    for i = 0, 80 do fields[#fields + 1] = old .. 'w' .. i end
    for i = 0, 20 do fields[#fields + 1], fields[#fields + 2] = old .. 'h' .. i, old .. 'l' .. i end
    redis.call('HDEL', MINUTES, unpack(fields))
  end
  s.minute = upto
  if upto == minute then
    for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, KEEP) end
  end
end

-- The snapshot: lines of text, and behind them what is packed: the front's orders
-- (each less the one before), the sketch, its ends. Go's parse.go reads it.
local exact = front(p)
local orders, edge = {}, 0
local heads = redis.call('ZRANGE', LINE, 0, exact - 1, 'WITHSCORES')
for i = 2, #heads, 2 do
  local ord = tonumber(heads[i])
  orders[i / 2] = ord - edge
  edge = ord
end
local oldest = heads[2] or '0'
-- A sketch that cannot be read is begun anew: an error would end the tick here, after it has admitted and before the limiter
-- is told, and the next one likewise.
local function drawn(text)
  local chunks, ends, came, left, heads_before, sample_before = {}, {}, 0, 0, {}, {}
  if text then
    local size = tonumber(string.match(text, '^[^\n]* (%d+)\n'))
    local all = cmsgpack.unpack(string.sub(text, -size))
    chunks, ends, came, left = unpack(all, 2, 5)
    heads_before, sample_before = all[9] or heads_before, all[10] or sample_before
  end
  chunks, ends = sketch(s, chunks, ends, exact, edge, length, s.came > came, s.abandons > left)
  local seconds = (s.now - before) / 1000000
  return chunks, ends, fade(passed, heads_before, seconds, HEADS_FADE, s.returned), fade(sample, sample_before, seconds, SAMPLE_FADE, 0)
end
local read, chunks, ends, came_to, waited = pcall(drawn, snapshot)
if not read then chunks, ends, came_to, waited = drawn(nil) end
s.returned = 0
local tail = length > exact and tonumber(redis.call('ZRANGE', LINE, -1, -1, 'WITHSCORES')[2]) or 0
local packed = cmsgpack.pack({ orders, chunks, ends, s.came, s.abandons, s.gone, tail, s.rough, came_to, waited, holds(s, heads), s.revokes, backlog })
local flow = {}
for sec = second - 9, second do
  local f = redis.call('HMGET', FLOW, str(sec) .. 'a', str(sec) .. 'b')
  flow[#flow + 1] = str(sec) .. ':' .. (f[1] or '0') .. ':' .. (f[2] or '0')
end
local live, message, version = {}, '', '0'
local changes = redis.call('HGETALL', LIVE)
for i = 1, #changes, 2 do
  if changes[i] == 'message' then
    message = changes[i + 1]
    live[#live + 1] = 'message=1'
  elseif changes[i] == 'version' then
    version = changes[i + 1]
  else
    live[#live + 1] = changes[i] .. '=' .. changes[i + 1]
  end
end
-- The seq that save_state is about to write.
built = str(s.seq + 1)
snapshot = table.concat({
  table.concat({ '4', built, s.epoch, str(s.fence), str(s.now), str(s.wall), str(length), str(parked), str(admitted),
    str(sessions), oldest, version, str(s.born), str(redis.call('ZCARD', GATEWAYS)), str(s.joins), str(s.admissions),
    str(s.claims), str(s.lapses), str(s.abandons), str(s.time), s.gaps == '' and '-' or string.gsub(s.gaps, ' ', ','), str(s.reset), str(s.hold),
    str(p.rate), str(s.opens), str(s.drawn), str(s.prequeued), str(s.target), str(#packed) }, ' '),
  table.concat(live, ' '),
  table.concat(pending, ','),
  table.concat(flow, ','),
  message,
}, '\n') .. packed
redis.call('SET', SNAPSHOT, snapshot, 'EX', KEEP)
save_state(s)
return answer(snapshot)

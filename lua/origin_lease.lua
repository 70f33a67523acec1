#!lua flags=allow-oom
-- origin_lease: grants a room a lease of its origin's budget: its share, by weight, of the available units.
-- KEYS: budget, leases, heard, active, idle, backlog, weights, clock
-- ARGV: now, room, rate, burst, weight, want, keep, number, left, grant (0: only reads the report), seen
-- RETURNS: {number (0: no lease), units, life (µs), tight, expected (thousandths a second), spare (whole tokens), granted, short, rooms with a queue,
--   due (µs; 0: with the next tick)}
-- INVARIANT: the bucket's tokens and the units that leases may still spend are together never above burst; a number is used once.
-- INCLUDE: clock, limiter, fair
local BUDGET, LEASES, HEARD, ACTIVE, IDLE, BACKLOG, WEIGHTS, CLOCK =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- number, left: the room has left units of its leases up to that number.
-- seen: the greatest number of a lease of this budget that the caller has received.
-- want: units that the room could use by its next call, beyond what is left;
-- keep: how many units it wants to hold besides, for arrivals.
local LIFE, IDLE_LIFE = 500000, 1500000 -- two ticks of a busy room, two of an idle one
local QUIET = 1500000                   -- a room that was silent for so long has no share
-- µs for which a new lease may still be on its way. Its room gets no other lease in that time: a room accepts leases only in the order of
-- their numbers, so a lease that is overtaken by another gateway's would be lost.
local FLIGHT = 50000
local NEXT = 0.3                        -- seconds within which a room with a queue calls again
local SOON = 25000                      -- µs; the room is never asked to call again sooner
local TURNS = 64                        -- a turn takes 1/TURNS of the available units

local now, room = clock_now(ARGV[1]), ARGV[2]
local rate, burst, weight = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local want, keep = tonumber(ARGV[6]), tonumber(ARGV[7])
local known, left, seen = tonumber(ARGV[8]), tonumber(ARGV[9]), math.max(tonumber(ARGV[8]), tonumber(ARGV[11]))

-- A room's entry in LEASES: till|number:units,… of the leases that it has not reported on yet, and what is left of those
-- that it has, as one. A new lease prolongs what is left of those before it, so all have one end.
local entries, held, mine = redis.call('HGETALL', LEASES), 0, { till = 0 }
local over = {}
for i = 1, #entries, 2 do
  local till, list = string.match(entries[i + 1], '^(%d+)|(.*)$')
  local open = { till = tonumber(till) }
  -- A lease that ends later than a life from now was granted before the clock was set back. That must not stop the budget.
  if open.till > now + IDLE_LIFE then
    open.till = now + IDLE_LIFE
    redis.call('HSET', LEASES, entries[i], int(open.till) .. '|' .. list)
  end
  for n, u in string.gmatch(list, '(%d+):(%d+)') do
    open[#open + 1] = { tonumber(n), tonumber(u) }
    held = held + tonumber(u)
  end
  if entries[i] == room then mine = open end
  if open.till <= now then over[#over + 1] = entries[i] end
end

-- The bucket holds burst less the units that leases may still spend. It is refilled before leases are updated: units that were spent or have
-- expired since the last call kept it lower until now.
local h = redis.call('HMGET', BUDGET, 'level', 'at', 'number', 'granted', 'short')
local b = { rate = rate, burst = burst - 1000 * held, level = tonumber(h[1] or 0) }
-- It starts empty; leases from before the store lost its data have to end first.
b.at = math.min(tonumber(h[2] or now + (seen > 0 and IDLE_LIFE or 0)), now + IDLE_LIFE)
limiter.token_bucket.refill(b, now)

if #over > 0 then redis.call('HDEL', LEASES, unpack(over)) end
if mine.till <= now then mine = { till = 0 } end
local sum, upto, rest = 0, 0, {}
for _, e in ipairs(mine) do
  if e[1] <= known then
    sum, upto = sum + e[2], math.max(upto, e[1])
  else
    rest[#rest + 1] = e
  end
end
local granting = ARGV[10] == '1'
for _, e in ipairs(rest) do
  if math.abs(now - e[1]) < FLIGHT then granting = false end
end
sum = math.min(sum, left)
if sum > 0 then table.insert(rest, 1, { upto, sum }) end

for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', HEARD, int(now + 1), '+inf', 'LIMIT', 0, 100)) do
  redis.call('ZADD', HEARD, int(now), ahead)
end
for _, quiet in ipairs(redis.call('ZRANGEBYSCORE', HEARD, '-inf', int(now - QUIET), 'LIMIT', 0, 100)) do
  fair.leave(ACTIVE, IDLE, tonumber(redis.call('GET', CLOCK) or 0), quiet)
  redis.call('HDEL', BACKLOG, quiet)
  redis.call('HDEL', WEIGHTS, quiet)
  redis.call('ZREM', HEARD, quiet)
end
redis.call('ZADD', HEARD, int(now), room)
redis.call('HSET', WEIGHTS, room, int(weight))
local v = tonumber(redis.call('GET', CLOCK) or 0)
if v > 4000000000000000 then -- tags stay below 2^53
  for _, set in ipairs({ ACTIVE, IDLE }) do
    local tags = redis.call('ZRANGE', set, 0, -1, 'WITHSCORES')
    for i = 1, #tags, 2 do redis.call('ZADD', set, int(tonumber(tags[i + 1]) - v), tags[i]) end
  end
  v = 0
  redis.call('SET', CLOCK, '0')
end
if want > 0 then
  redis.call('HSET', BACKLOG, room, int(want))
  fair.enter(ACTIVE, IDLE, v, room)
else
  redis.call('HDEL', BACKLOG, room)
  fair.leave(ACTIVE, IDLE, v, room)
end

local weights, all = {}, 0
local flat = redis.call('HGETALL', WEIGHTS)
for i = 1, #flat, 2 do
  weights[flat[i]] = tonumber(flat[i + 1])
  all = all + weights[flat[i]]
end
local wants = {}
flat = redis.call('HGETALL', BACKLOG)
for i = 1, #flat, 2 do wants[flat[i]] = tonumber(flat[i + 1]) end
local flows, lined, me = {}, 0, nil
flat = redis.call('ZRANGE', ACTIVE, 0, -1, 'WITHSCORES')
for i = 1, #flat, 2 do
  local f = { name = flat[i], tag = tonumber(flat[i + 1]), weight = weights[flat[i]] or 1000, units = wants[flat[i]] or 0 }
  flows[#flows + 1] = f
  lined = lined + f.weight
  if f.name == room then me = f end
end

-- The available units are divided between all rooms with a queue, as by start-time fair queuing, in turns; the caller takes its share, and the
-- others' stays in the bucket until they call.
local there = limiter.token_bucket.available(b)
local spare, units = there, 0
local turn = math.max(1, math.floor(there / TURNS))
while granting and spare > 0 do
  local f
  for _, g in ipairs(flows) do
    if g.units > 0 and (not f or g.tag < f.tag) then f = g end
  end
  if not f then break end
  local n = math.min(f.units, turn, spare)
  if f == me then
    units = units + n
    v = math.max(v, f.tag)
  end
  f.tag = f.tag + fair.charge(n, f.weight)
  f.units = f.units - n
  spare = spare - n
end

local granted, short = tonumber(h[4] or 0), tonumber(h[5] or 0)
if me and granting and units < want then short = short + 1 end
-- Arrivals get only units that no queue wants.
local content = not me or me.units == 0
if content and granting and spare > 0 then
  units = units + math.min(math.max(0, keep - (me and 0 or sum)), spare)
end
local have = 0
for _, e in ipairs(rest) do have = have + e[2] end
for _, e in ipairs(mine) do held = held - e[2] end
local cap = burst - 1000 * (held + have) -- the most that the bucket may hold from now on
local number, life = 0, me and LIFE or IDLE_LIFE
if granting and (units > 0 or content and spare > 0 and have > 0 and keep > 0) then
  number = math.max(tonumber(h[3] or 0), seen, now - 1) + 1
  rest[#rest + 1] = { number, units }
  mine.till = math.max(mine.till, now + life)
  limiter.token_bucket.take(b, units)
  granted = granted + units
end
if me and units > 0 then
  redis.call('SET', CLOCK, int(v))
  redis.call('ZADD', ACTIVE, 'XX', int(me.tag), room)
  if me.units > 0 then
    redis.call('HSET', BACKLOG, room, int(me.units))
  else
    redis.call('HDEL', BACKLOG, room)
    fair.leave(ACTIVE, IDLE, v, room)
  end
  fair.forget(IDLE, v)
end
if #rest > 0 then
  local list = {}
  for i, e in ipairs(rest) do list[i] = int(e[1]) .. ':' .. int(e[2]) end
  redis.call('HSET', LEASES, room, int(mine.till) .. '|' .. table.concat(list, ','))
else
  redis.call('HDEL', LEASES, room)
end
redis.call('HSET', BUDGET, 'level', int(b.level), 'at', int(b.at), 'number', int(math.max(tonumber(h[3] or 0), number)),
  'granted', int(granted), 'short', int(short))
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, 2592000) end

-- tight: unless the room reports its units as soon as they are spent, the bucket is full before the next call.
local full = b.level / 1000000 + rate * NEXT > b.burst - 1000 * units
local tight = have + units > 0 and full
-- due: the bucket is full before the next call, and further units would be lost: the room should call when it is nearly full.
cap = cap - 1000 * units
local due = 0
if full and units < want and rate > 0 and cap >= 1000 then
  due = math.max(SOON, math.ceil((math.max(1000, cap * 0.8) * 1000000 - b.level) / rate))
end
local with = me and lined or lined + weight
return { int(number), units, life, tight and 1 or 0, int(math.floor(rate * weight / with)), math.floor(math.max(0, b.level) / 1000000000),
  int(granted), int(short), #flows, int(due) }

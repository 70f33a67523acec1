#!lua flags=allow-oom
-- series_record: records the figures of a room for this second, and adds counts to its minute and its ten minutes.
-- KEYS: state, sessions, minutes, series_seconds, series_minutes, series_tens
-- ARGV: now, kinds, reason, figures, ...
-- RETURNS: {OK, now, since when the reason holds (µs; 0: not known), µs until the first session is forgotten (0: not known), 1 if the figures
--   of this second were recorded by this call, else 0}
-- REPLY OK: 'OK'
-- INVARIANT: the figures of a second are recorded once, however many gateways send them. Each hash has a fixed number of fields: a row
-- replaces the one that is as old as the hash is long.
-- INCLUDE: clock

-- kinds: a letter for each figure: how the seconds of a longer row are joined (x: the largest, l: the last, m: the mean). reason: its index, or
-- -1; figures: whole numbers joined by blanks, - where one is not known, or '' for none. Then pairs (name, number): counts since the last call
-- of this gateway.
--
-- A row is 'slot;seconds;figures;counts': the time divided by its length, how many seconds are in it, the figures (a mean as sum:number) and
-- the counts as name=number joined by commas. Its field is the slot modulo the number of rows.
local now = clock_now(ARGV[1])
local second = math.floor(now / 1000000)
local kinds = ARGV[2]
local STATE, SESSIONS, HISTORY, SECONDS, MINUTES, TENS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local KEEP = 2678400 -- seconds: a day longer than the rows of ten minutes

local function words(text)
  local list = {}
  for w in string.gmatch(text, '%S+') do list[#list + 1] = w end
  return list
end

local function read_row(key, slot, size)
  local row = redis.call('HGET', key, int(slot % size))
  local at, n, figures, counts = string.match(row or '', '^(%d+);(%d+);([^;]*);(.*)$')
  if tonumber(at) ~= slot then return 0, {}, {}, {} end
  local names, numbers = {}, {}
  for name, number in string.gmatch(counts, '([^=,]+)=(%d+)') do
    names[#names + 1] = name
    numbers[name] = tonumber(number)
  end
  return tonumber(n), words(figures), names, numbers
end

local function write_row(key, slot, size, n, figures, names, numbers)
  local counts = {}
  for i, name in ipairs(names) do counts[i] = name .. '=' .. int(numbers[name]) end
  redis.call('HSET', key, int(slot % size), int(slot) .. ';' .. int(n) .. ';' .. table.concat(figures, ' ') .. ';' .. table.concat(counts, ','))
end

local function add_count(names, numbers, name, n)
  if not numbers[name] then
    names[#names + 1] = name
    numbers[name] = 0
  end
  numbers[name] = numbers[name] + n
end

-- join adds the figures of a second to those of a longer row.
local function join(figures, new)
  for i = 1, #kinds do
    local kind, old, v = string.sub(kinds, i, i), figures[i] or '-', new[i] or '-'
    if v == '-' then
      figures[i] = old
    elseif kind == 'm' then
      local sum, n = string.match(old, '^(%-?%d+):(%d+)$')
      figures[i] = int(tonumber(sum or 0) + tonumber(v)) .. ':' .. int(tonumber(n or 0) + 1)
    elseif kind == 'l' or old == '-' or tonumber(v) > tonumber(old) then
      figures[i] = v
    else
      figures[i] = old
    end
  end
end

-- add adds the figures of a second, if they are new, and counts to the row of that time.
local function add(key, slot, size, new, counts)
  if not new and #counts == 0 then return end
  local n, figures, names, numbers = read_row(key, slot, size)
  if new then
    n = n + 1
    join(figures, new)
  end
  for i = 1, #counts, 2 do add_count(names, numbers, counts[i], tonumber(counts[i + 1])) end
  write_row(key, slot, size, n, figures, names, numbers)
end

-- times_of returns the counts of a minute that the room's own scripts keep: those who left, and times in the queue by bucket.
local function times_of(minute)
  local fields, names = {}, { 'x' }
  for i = 0, 80 do names[#names + 1] = 'w' .. i end
  for i = 0, 20 do names[#names + 1], names[#names + 2], names[#names + 3] = 'y' .. i, 'h' .. i, 'l' .. i end
  for i, name in ipairs(names) do fields[i] = int(minute) .. name end
  local counts = {}
  for i, v in ipairs(redis.call('HMGET', HISTORY, unpack(fields))) do
    if v then counts[#counts + 1], counts[#counts + 2] = names[i], v end
  end
  return counts
end

local minute = math.floor(second / 60)
local last = tonumber(redis.call('HGET', MINUTES, 'last') or minute)
if last ~= minute or redis.call('EXISTS', MINUTES) == 0 then
  if last < minute then -- a minute has ended
    local counts = times_of(last)
    add(MINUTES, last, 1440, nil, counts)
    add(TENS, math.floor(last / 10), 4320, nil, counts)
  end
  redis.call('HSET', MINUTES, 'last', int(minute))
  for i = 4, 6 do redis.call('EXPIRE', KEYS[i], KEEP) end
end

local figures, counts = nil, {}
if ARGV[4] ~= '' and read_row(SECONDS, second, 600) == 0 then figures = words(ARGV[4]) end
for i = 5, #ARGV do counts[#counts + 1] = ARGV[i] end
add(SECONDS, second, 600, figures, {})
add(MINUTES, minute, 1440, figures, counts)
add(TENS, math.floor(second / 600), 4320, figures, counts)

local reason, since = string.match(redis.call('HGET', SECONDS, 'reason') or '', '^(%S+) (%d+)$')
if figures and ARGV[3] ~= '-1' and reason ~= ARGV[3] then
  reason, since = ARGV[3], int(now)
  redis.call('HSET', SECONDS, 'reason', reason .. ' ' .. since)
end

local till, first = 0, redis.call('ZRANGE', SESSIONS, 0, 0, 'WITHSCORES')
if first[2] then till = math.max(0, tonumber(first[2]) - now - tonumber(redis.call('HGET', STATE, 'adj') or 0)) end
return { REPLY_OK, int(now), reason == ARGV[3] and since or '0', int(till), figures and '1' or '0' }

#!lua flags=no-writes
-- outcomes_read: reads outcomes of a group in the order of their arrival, or its dead letters by id.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group,
--   kind (done or dead),
--   page (of done),
--   skip (places of that page),
--   after (of dead: the id before the first; empty: none),
--   limit
-- RETURNS: {reason}, or for the next call
--   page, skip   (of done)
--   after        (of dead; empty: none)
--   then two values for each outcome: id and record, false where it is gone; or an empty id and the number of consecutive places of the
--   log without a name
-- INVARIANT: reads only, and 1 MiB of records at most, or one.
-- INCLUDE: clock, limiter, fair, bulk

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
local page, skip, after, limit, room = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), STEP_BYTES
local reply = { 0, 0, '' }

-- read adds the records of ids from the given one on while there is room, and returns the number of ids that it processed.
local function read(ids, from)
  local at = from
  while at <= #ids and limit > 0 and room > 0 do
    local fit = g[G_WIDEST] > 0 and math.floor(room / g[G_WIDEST]) or 1
    local keys = {}
    for i = at, math.min(#ids, at + math.max(1, math.min(fit, limit)) - 1) do keys[#keys + 1] = gkey .. '/' .. ids[i] end
    for i, record in ipairs(redis.call('HMGET', K.jobs, unpack(keys))) do
      room = room - (record and #record or 0)
      reply[#reply + 1], reply[#reply + 2] = ids[at + i - 1], record
    end
    at, limit = at + #keys, limit - #keys
  end
  return at - from
end

if ARGV[4] == 'dead' then
  local from = after == '' and '[' .. gkey .. '/' or '(' .. gkey .. '/' .. after
  local ids = redis.call('ZRANGEBYLEX', K.dead, from, '(' .. gkey .. '0', 'LIMIT', 0, limit)
  local all = #ids == limit
  for i, jobkey in ipairs(ids) do ids[i] = string.sub(jobkey, #gkey + 2) end
  local n = read(ids, 1)
  if n > 0 and (all or n < #ids) then reply[3] = ids[n] end
  return reply
end
for _ = 1, 1000 do
  if limit <= 0 or room <= 0 then break end
  local text = redis.call('HGET', K.done, gkey .. ':' .. int(page))
  local ids, size = {}, 0
  if text then
    for id in string.gmatch(text, '([^\n]*)\n') do ids[#ids + 1] = id end
    size = #ids
  elseif page < g[G_DP] or (page == g[G_DP] and g[G_DN] == PAGE) then
    size = PAGE -- nothing of it is kept
  else
    break
  end
  while skip < size and limit > 0 and room > 0 do
    local from, part = skip, {}
    while skip < size and (ids[skip + 1] or '') == '' do skip = skip + 1 end
    if skip > from then reply[#reply + 1], reply[#reply + 2] = '', skip - from end
    for i = skip + 1, size do
      if ids[i] == '' then break end
      part[#part + 1] = ids[i]
    end
    skip = skip + read(part, 1)
  end
  if skip < size or size < PAGE then break end
  page, skip = page + 1, 0
end
reply[1], reply[2] = int(page), int(skip)
return reply

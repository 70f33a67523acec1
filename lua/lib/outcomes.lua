-- outcomes: deletes outcomes that a group does not keep. G_RESULTS: 0 keeps all, 1 those of jobs that did not succeed, 2 those from which a
-- job can be redriven.
--
-- An outcome that is not kept is deleted once the reducer has read its whole page of the log: the job's record, and its id in the log. The
-- other lines of the page keep their positions; a page with no id left is deleted as a whole. While jobs may still be added, a record is
-- only replaced by 'K' (lib bulkjobs), so that a job that is submitted again is recognised. G_SHRUNK and G_CLEARED count the positions of
-- the log that were processed for replacing and for deleting, G_GONE the deleted outcomes. Where outcomes are counted on arrival (G_TALLY),
-- work.log does the same in the job's own step: G_SHRUNK then counts the records that became 'K', and only these are left for the end.

local outcomes = { STEP = 1000 }

-- outcomes.dropped reports whether a record is not kept.
function outcomes.dropped(g, jobkey, record)
  local letter = string.sub(record, 1, 1)
  if letter == 'S' or letter == 'K' then return true end
  if g[G_RESULTS] < 2 or letter == 'D' then return false end
  return letter ~= 'F' or not redis.call('ZSCORE', K.dead, 'F' .. jobkey)
end

-- outcomes.walk deletes or replaces outcomes that are not kept, from position at up to last: it reads at most n outcomes or STEP_BYTES, and
-- returns where it stopped.
function outcomes.walk(g, at, last, n)
  local room, closed = STEP_BYTES, g[G_SEALED] == 1 or g[G_STATUS] > RUNNING
  n = math.min(last, at + n)
  while at < n and room > 0 do
    local skip = at % PAGE
    local field, ids, keys = g[G_KEY] .. ':' .. int((at - skip) / PAGE), {}, {}
    for id in string.gmatch(redis.call('HGET', K.done, field) or '', '([^\n]*)\n') do ids[#ids + 1] = id end
    local fit = g[G_WIDEST] > 0 and math.floor(room / g[G_WIDEST]) or 1
    local stop = math.min(#ids, skip + math.max(1, fit), skip + n - at)
    if stop <= skip then return n end -- past its retention
    for i = skip + 1, stop do keys[#keys + 1] = g[G_KEY] .. '/' .. ids[i] end
    local gone, short = {}, {}
    for i, record in ipairs(redis.call('HMGET', K.jobs, unpack(keys))) do
      room = room - (record and #record or 0)
      if record and outcomes.dropped(g, keys[i], record) then
        if closed then
          gone[#gone + 1], ids[skip + i] = keys[i], ''
        elseif record ~= 'K\n' then
          short[#short + 1], short[#short + 2] = keys[i], 'K\n'
        end
      end
    end
    if short[1] then redis.call('HSET', K.jobs, unpack(short)) end
    if gone[1] then
      redis.call('HDEL', K.jobs, unpack(gone))
      g[G_GONE] = g[G_GONE] + #gone
      local text = table.concat(ids, '\n') .. '\n'
      local full = #ids == PAGE or g[G_STATUS] >= AGGREGATING and (g[G_STATUS] ~= CANCELLED or g[G_SWEPT] > 0)
      if full and #text == #ids then redis.call('HDEL', K.done, field) else redis.call('HSET', K.done, field, text) end
    end
    at = at + stop - skip
  end
  return at
end

-- outcomes.drop runs one such step for a group, and reports whether there is more to do immediately.
function outcomes.drop(g, n)
  if g[G_RESULTS] == 0 then return false end
  if finished[g[G_KEY]] then return true end -- their ids are added to the log only at the end of this step
  local last = g[G_REDUCED]
  if g[G_STATUS] < AGGREGATING or last < ended(g) then
    last = last - last % PAGE
  else
    last = g[G_DP] * PAGE + g[G_DN]
  end
  if g[G_SEALED] == 1 or g[G_STATUS] > RUNNING then
    g[G_CLEARED] = outcomes.walk(g, g[G_CLEARED], last, n)
    return g[G_CLEARED] < last
  end
  g[G_SHRUNK] = outcomes.walk(g, g[G_SHRUNK], last, n)
  return g[G_SHRUNK] < last
end

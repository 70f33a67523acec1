-- seq: which sequence numbers the state of a room has had.

-- A server that is promoted, or restored from an older copy, lacks the last writes and would use their sequence numbers again. Its data was
-- written before a silence, so after each silence the numbers skip to the clock. A caller that knows a skipped number knows lost writes,
-- however many calls others have made since. The skips are written as 'from:to from:to', the newest first.
local SKIP_AFTER = 500000 -- µs without a call; no server is promoted sooner after the last call of the server before it
local SKIPS = 16          -- skips that are remembered: those of at least 8 s

-- skipped reports whether seq was never used, although later numbers were.
local function skipped(skips, seq)
  for from, to in string.gmatch(skips, '(%d+):(%d+)') do
    if seq > tonumber(to) then return false end
    if seq > tonumber(from) then return true end
  end
  return false
end

-- add_skip returns the skips with a newer one.
local function add_skip(skips, from, to)
  local list = { int(from) .. ':' .. int(to) }
  for skip in string.gmatch(skips, '%S+') do
    if #list < SKIPS then list[#list + 1] = skip end
  end
  return table.concat(list, ' ')
end

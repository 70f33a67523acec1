-- clock: the time of a script.

-- clock_now returns microseconds: the caller's, or Redis's own where the caller passes 0.
local function clock_now(arg)
  local us = tonumber(arg)
  if not us or us < 0 or us % 1 ~= 0 then
    error({err = 'ERR ARGV[1] must be now in whole microseconds, or 0 for the clock of Redis'})
  end
  if us > 0 then
    return us
  end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- int formats a whole number for a reply or a stored value: tostring and .. keep only 14 digits, and microseconds have 16.
local function int(x)
  return string.format('%.0f', x)
end

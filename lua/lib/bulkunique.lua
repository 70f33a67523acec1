-- bulkunique: names that may be used once within a time, and the groups of single jobs.
--
-- uniques has for each name the end of its time (µs) and what was submitted first under it:
--   g<tenant>/<key>   a group: its id
--   j<tenant>/<key>   a single job, under its unique key: the ids of its group and itself, separated by a blank
--   i<tenant>/<id>    a single job with an id that the client chose: the same
--   r<day>/<series>   the group that takes single jobs of one tenant, type and level now, or that are due on a later day: its short name
-- lapses has the names by the end of their time; the dispatcher removes them then.

local unique = {}

-- unique.first returns what was submitted first under a name; nil if nothing was, or if its time has passed.
function unique.first(name)
  local till, first = string.match(redis.call('HGET', K.uniques, name) or '', '^(%d+) (.*)$')
  return till and tonumber(till) > now and first or nil
end

-- unique.note records what was submitted under a name, until a time.
function unique.note(name, first, till)
  redis.call('HSET', K.uniques, name, int(till) .. ' ' .. first)
  redis.call('ZADD', K.lapses, int(till), name)
end

-- unique.lapse removes up to n names whose time has passed, and returns their number.
function unique.lapse(n)
  local names = redis.call('ZRANGEBYSCORE', K.lapses, '-inf', int(now), 'LIMIT', 0, n)
  if names[1] then
    redis.call('ZREM', K.lapses, unpack(names))
    redis.call('HDEL', K.uniques, unpack(names))
  end
  return #names
end

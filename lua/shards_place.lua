#!lua flags=allow-oom
-- shards_place: reads the placements of groups on shards, and adds one.
-- KEYS: layout (a hash)
-- ARGV: now, first (shards of a new installation, with commas between), known (placements that the caller extends; empty: it only reads), shards (of the new placement), after (µs until it counts)
-- RETURNS: {placements (µs from which it counts, shards; ...), now, 1 if one was added}
-- INVARIANT: a placement is never changed or removed, so that the home of a group is always among those of the placements. An installation from before there were placements has shard 0.
-- INCLUDE: clock

local now = clock_now(ARGV[1])
local held = redis.call('HMGET', KEYS[1], 'version', 'placements')
local list, added = held[2], 0
if not list then
  list = held[1] and '0 0' or '0 ' .. ARGV[2]
  if list ~= '0 0' then redis.call('HSET', KEYS[1], 'placements', list) end
end
if ARGV[3] ~= '' and ARGV[3] == list then
  list, added = list .. ';' .. int(now + tonumber(ARGV[5])) .. ' ' .. ARGV[4], 1
  redis.call('HSET', KEYS[1], 'placements', list)
end
return { list, int(now), added }

#!lua flags=allow-oom
-- room_patch: changes a room's live fields and writes the audit log.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, action, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, version; 0: a field has another value than the caller read, and nothing was changed}
-- INVARIANT: the version only grows, so that after a loss of data the newest change wins.
-- INCLUDE: clock, limiter, room, meter

-- Then groups of three: set or clear, field, value; or match, field, the value that it must have ('': none).
local s, err = open_room()
if not s then return err end
local p = policy()
room_limiter(s, p).save() -- until now the limiter earns at the old rate

for i = 8, #ARGV, 3 do
  if ARGV[i] == 'match' and (redis.call('HGET', LIVE, ARGV[i + 1]) or '') ~= ARGV[i + 2] then return save_and_reply(s, { 0 }) end
end

local changes = {}
for i = 8, #ARGV, 3 do
  local f = ARGV[i + 1]
  local before, after = redis.call('HGET', LIVE, f), nil
  if ARGV[i] == 'set' then
    redis.call('HSET', LIVE, f, ARGV[i + 2])
    after = ARGV[i + 2]
  elseif ARGV[i] == 'clear' then
    redis.call('HDEL', LIVE, f)
  end
  -- The log has the hash of the facts, whose text is too long for it.
  if ARGV[i] ~= 'match' and f ~= 'facts' then changes[#changes + 1] = { f, before or nil, after } end
end
local version = redis.call('HINCRBY', LIVE, 'version', 1)
audit(s, ARGV[5], ARGV[6], ARGV[7], changes)
-- The next tick of any gateway builds a snapshot with the change in it.
redis.call('DEL', SNAPSHOT)
return save_and_reply(s, { version })

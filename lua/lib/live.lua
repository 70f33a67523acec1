-- live: changes of a room's live fields, and the records of those who change them by a rule (a ramp, an alarm).

-- A record is a field of the state's hash, 'record:' and its name: version:length:stopper text. It is replaced only by a caller that names
-- its version. stopper is empty, or whoever has changed the rate by hand since a ramp set it.
local function read_record(name)
  local have = redis.call('HGET', STATE, 'record:' .. name)
  if not have then return 0, '', '' end
  local version, length, at = string.match(have, '^(%d+):(%d+):()')
  return tonumber(version), string.sub(have, at, at + tonumber(length) - 1), string.sub(have, at + tonumber(length))
end

local function write_record(s, name, version, stopper, text)
  redis.call('HSET', STATE, 'record:' .. name, str(version) .. ':' .. #stopper .. ':' .. stopper .. text)
  s.records = s.records + 1
end

-- change_live changes the live fields named in groups of three from ARGV[from] on: set or clear, field, value; what room_patch compares (match,
-- absent) is left out, and note adds a name and a value to the audit log. It writes the log and returns the version of the live
-- fields. ramp: the ramp of the room is the caller.
local function change_live(s, p, who, room, action, from, ramp)
  room_limiter(s, p).save() -- until now the limiter earns at the old rate
  local changes = {}
  for i = from, #ARGV, 3 do
    local verb, f, before, after = ARGV[i], ARGV[i + 1], nil, nil
    local changed = verb == 'set' or verb == 'clear'
    if changed then before = redis.call('HGET', LIVE, f) or nil end
    if verb == 'set' then
      redis.call('HSET', LIVE, f, ARGV[i + 2])
      after = ARGV[i + 2]
    elseif verb == 'clear' then
      redis.call('HDEL', LIVE, f)
    elseif verb == 'note' then
      after = ARGV[i + 2]
    end
    -- The log has the hash of the facts, whose text is too long for it.
    if (changed or verb == 'note') and f ~= 'facts' then changes[#changes + 1] = { f, before, after } end
    if changed and f == 'rate' and not ramp then
      local version, stopper, text = read_record('ramp')
      if version > 0 and stopper == '' then write_record(s, 'ramp', version + 1, who, text) end
    end
  end
  audit(s, who, room, action, changes)
  -- The next tick of any gateway builds a snapshot with the change in it.
  redis.call('DEL', SNAPSHOT)
  return redis.call('HINCRBY', LIVE, 'version', 1)
end

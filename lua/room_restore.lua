#!lua flags=allow-oom
-- room_restore: starts a room in this store, or restores from a gateway's memory what the store has lost.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, fresh, reached, replied, gaps, reset, fence, version, active, opens, drawn, prequeued, target,
--   hold (µs), window, window_left (µs), passes_left (µs), evacuated, evacuated_wall, live_count, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall}
-- INVARIANT: a place survives (P3), and the limit holds (P1): what was admitted, ended or revoked stays so, and the limiter starts empty.
-- INCLUDE: clock, limiter, seq, room, sessions, meter, presence, lottery

-- epoch: '' for a gateway without a memory of the room; fresh: a random name for a new epoch; reached: the order time up to which that
-- gateway has given orders; replied: the order time of its last reply from the former store; gaps: the silences that it remembers; reset: the
-- last reset that it remembers;
-- hold: what was left of the former store's; window: a longer claim window than today's by which visitors were advised, and window_left what
-- is left of its time; passes_left: for how long passes of a longer ttl than today's may be valid; evacuated, evacuated_wall: the last evacuation that it remembers.
-- After live_count pairs (field, value) come groups of five: kind, id, wall, at, client. kind is admitted (at: order time), session (at: its
-- end), revocation (at: the end of its passes, order time), or the word of another grant (claimed, lapsed, left, removed, revoked; at:
-- when claimed).

-- SETTLE is the time after a loss in which nothing is claimed, so that every gateway, an idle one too, can report first which tickets are spent.
local SETTLE = 2500000
local known, seq = ARGV[2], tonumber(ARGV[3])
local s = load_state()
s.wall = clock_now(ARGV[1])
local p = policy()

-- generation returns the number of an epoch, which is generation.random: a store that went back by an epoch is detected.
local function generation(epoch) return num(string.match(epoch, '^%d+')) end

local lost = s.epoch == '' or generation(s.epoch) < generation(known) or (s.epoch == known and has_lost(s, seq))
local reached, replied = tonumber(ARGV[6]), tonumber(ARGV[7])

-- start_epoch starts the room anew, after a loss or for the first time. If the gateway has no memory of the room, it is a new room with a full
-- limiter, until a token of another epoch proves the contrary (room_enter).
local function start_epoch()
  s.epoch = str(math.max(generation(s.epoch), generation(known)) + 1) .. '.' .. ARGV[5]
  s.fresh_store = 1
  s.tick = s.wall
  if known == '' then
    s.at = s.wall
    begin_limiter(s, p, full(p))
  else
    s.seq = math.max(s.seq, seq) + 1000
    -- In an older copy of the room neither the time without a store nor the lead of this store's clock counts as room time.
    local silent = math.max(s.wall + s.lead, s.last, reached) - replied
    if silent > GAP then s.adj = s.adj - silent + 1000000 end
  end
  keep_time(s)
  s.lease = 0 -- some of it may be spent
  s.born, s.quiet = s.now, s.now
  s.trimmed = math.floor(s.now / 1000000) - 900
  redis.call('DEL', SNAPSHOT)
end

-- continue_room makes the started room the older one, from the memory of the first gateway that has one. A gateway without a memory may have
-- started the room a moment ago.
local function continue_room()
  local alive, own_gaps = s.now - s.born, s.gaps
  s.fresh_store, s.busy = 0, 1
  begin_limiter(s, p, spent(p))
  s.hold = math.max(s.hold, s.now + math.max(HOLD, tonumber(ARGV[17])))
  -- Visitors in the pre-queue may not have polled since the opening was brought forward.
  if tonumber(ARGV[15]) > 0 and tonumber(ARGV[14]) == 0 then s.unheard = s.now + longest_advised(s, p) end
  s.settle = s.now + SETTLE
  s.at = s.now
  s.gaps = ARGV[8]
  if lost then
    s.lead = math.max(s.lead, reached - s.wall)
    s.time = s.wall + s.lead
  else
    for till, us in string.gmatch(own_gaps, '(%d+):(%d+)') do add_gap(s, tonumber(till), tonumber(us)) end
    reach(s, reached)
  end
  -- The time from the last reply of the former store to the start of this one is a silence: no ticket ages in it.
  local began = s.time - alive
  if began - replied > GAP then add_gap(s, began, began - replied - 1000000) end
end

local function restore_live()
  local version = tonumber(ARGV[11])
  if version <= num(redis.call('HGET', LIVE, 'version')) then return end
  redis.call('DEL', LIVE)
  redis.call('HSET', LIVE, 'version', ARGV[11])
  for i = 0, tonumber(ARGV[23]) - 1 do
    redis.call('HSET', LIVE, ARGV[24 + 2 * i], ARGV[25 + 2 * i])
  end
end

-- restore_counts restores the claim window, the number of sessions and the adaptive rate, until the leader sets another.
local function restore_counts()
  local longest, left = tonumber(ARGV[18]), tonumber(ARGV[19])
  if left > 0 and longest >= s.window then s.window, s.window_till = longest, math.max(s.window_till, s.now + left) end
  s.reset = math.max(s.reset, tonumber(ARGV[9]))
  if tonumber(ARGV[21]) > s.evacuated then s.evacuated, s.evacuated_wall = tonumber(ARGV[21]), tonumber(ARGV[22]) end
  s.restored = s.seq + 1 -- as save_state writes it
  local sessions = tonumber(ARGV[12])
  if sessions > 0 then
    s.held = math.max(s.now < s.held_until and s.held or 0, sessions)
    s.held_until = s.now + math.max(p.ttl, tonumber(ARGV[20]))
  end
  if s.target == 0 then s.target = tonumber(ARGV[16]) end
end

-- restore_lottery restores the opening. A draw is made once: of two openings of one lottery the first counts, because orders were drawn by it.
local function restore_lottery()
  local opens, drawn = tonumber(ARGV[13]), tonumber(ARGV[14])
  if opens > s.opens or opens == s.opens and drawn > 0 and (s.drawn == 0 or drawn < s.drawn) then
    s.opens, s.drawn, s.opens_till = opens, drawn, s.wall + STANDS
  end
  if opens == s.opens then s.prequeued = math.max(s.prequeued, tonumber(ARGV[15])) end
end

-- restore_grant restores the grant of a ticket. Gateways may differ: one may remember a ticket as spent, another as admitted.
local function restore_grant(kind, id, wall, at, client)
  local g = grant(id)
  if not g or (g.what == 'admitted' and kind ~= 'admitted') then
    remove_from_queue(id)
    redis.call('ZREM', ADMITTED, id)
    if kind == 'admitted' and before_evacuation(s, room_time(s, at)) then
      redis.call('HDEL', GRANTS, id)
    elseif kind == 'admitted' then
      redis.call('ZADD', ADMITTED, str(room_time(s, at)), id)
      put_grant(id, 'admitted', wall, 0, '')
    else
      put_grant(id, kind, wall, at > 0 and room_time(s, at) or 0, client)
      remember(s, p, id)
    end
  elseif kind == 'claimed' and g.what == 'claimed' and g.client == '' and client ~= '' then
    -- The grant comes from another gateway's heartbeat, which has neither the client nor the time of the claim.
    local claimed = at > 0 and room_time(s, at) or g.claimed
    put_grant(id, 'claimed', g.wall > 0 and math.min(g.wall, wall) or wall, math.min(claimed, g.claimed), client)
  end
end

local function restore_record(kind, id, wall, at, client)
  if kind == 'session' then
    local g = grant(id)
    if not redis.call('ZSCORE', REVOKED, id) and not (g and is_claimed(g) and before_evacuation(s, g.claimed)) then keep_session(s, p, id, at - s.time) end
  elseif kind == 'revocation' then
    remove_from_queue(id)
    revoke(s, p, id, s.now + at - s.time)
  else
    restore_grant(kind, id, wall, at, client)
  end
end

if lost then start_epoch() else keep_time(s) end
s.fence = math.max(s.fence, tonumber(ARGV[10]), 1)
if known ~= '' and (lost or known ~= s.epoch) then
  if s.fresh_store > 0 then continue_room() end
  restore_counts()
  restore_live()
  restore_lottery()
  for i = 24 + 2 * tonumber(ARGV[23]), #ARGV, 5 do
    restore_record(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4])
  end
end
return save_and_reply(s, {})

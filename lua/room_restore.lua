#!lua flags=allow-oom
-- room_restore: begins a room in this store, or gives it back what a gateway knows when the store lost it.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, fresh, reached, heard, gaps, reset, fence, version, active, opens, drawn, prequeued, target, hold (µs), window, window_left (µs), passes_left (µs), live_count, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall}
-- INVARIANT: a place survives (3), and the limit holds (1): what was admitted, ended or revoked stays so, the limiter starts empty.
-- INCLUDE: clock, limiter, room, sessions, meter, presence, lottery

-- epoch is '' for a gateway that knows nothing. reached is the order time up to which that gateway has given orders, heard that
-- of the last answer it had from the former store, gaps the silences and reset the last reset that it knows; hold is what was left of
-- the former store's, window a longer claim window than today's by which visitors were advised, and what is left of its time, passes_left
-- for how long passes of a longer ttl than today's may be good. After live_count pairs (field,
-- value) come groups of five: kind, id, wall, at, client; kind is A admitted
-- (at: order time), S session (at: its end), R revoked (at: the end of its passes, order time), or the word of
-- a grant (claimed, lapsed, left, removed, revoked; at: when claimed).
-- For as long after a loss nothing is claimed, so that every gateway, an idle
-- one too, can say first which tickets are spent.
local SETTLE = 2500000
local known, seq = ARGV[2], tonumber(ARGV[3])
local s = load_state()
s.wall = clock_now(ARGV[1])
local p = policy()
-- An epoch is generation.random, so that a store that went back by an epoch is found out.
local function generation(epoch) return num(string.match(epoch, '^%d+')) end
local lost = s.epoch == '' or generation(s.epoch) < generation(known) or (s.epoch == known and s.seq < seq)
local reached = tonumber(ARGV[6])
local heard = tonumber(ARGV[7])

if lost then
  s.epoch = str(math.max(generation(s.epoch), generation(known)) + 1) .. '.' .. ARGV[5]
  -- Nobody has told it of the room yet. Where nobody can, it is a new one, with a full bucket, until a token of another
  -- epoch proves the contrary (room_enter).
  s.virgin = 1
  s.tick = s.wall
  if known == '' then
    s.at = s.wall
    begin_limiter(s, p, full(p))
  else
    s.seq = math.max(s.seq, seq) + 1000
    -- What an older copy holds has not grown older while no store was there, nor by as much as this one's clock is ahead.
    local silent = math.max(s.wall + s.lead, s.last, reached) - heard
    if silent > GAP then s.adj = s.adj - silent + 1000000 end
  end
  keep_time(s)
  s.lease = 0 -- some of it may be spent
  s.born, s.quiet = s.now, s.now
  s.trimmed = math.floor(s.now / 1000000) - 900
  redis.call('DEL', SNAPSHOT)
else
  keep_time(s)
end

s.fence = math.max(s.fence, tonumber(ARGV[10]), 1)

if known ~= '' and (lost or known ~= s.epoch) then
  if s.virgin > 0 then
    -- The first who knows the room. Another gateway, which knew nothing, may have begun it a moment ago.
    local alive, own = s.now - s.born, s.gaps
    s.virgin, s.busy = 0, 1
    begin_limiter(s, p, spent(p))
    s.hold = math.max(s.hold, s.now + math.max(HOLD, tonumber(ARGV[17])))
    -- Who gathers may not have heard yet that the opening was brought forward.
    if tonumber(ARGV[15]) > 0 and tonumber(ARGV[14]) == 0 then s.unheard = s.now + longest_advised(s, p) end
    s.settle = s.now + SETTLE
    s.at = s.now
    s.gaps = ARGV[8]
    if lost then
      s.lead = math.max(s.lead, reached - s.wall)
      s.time = s.wall + s.lead
    else
      for till, us in string.gmatch(own, '(%d+):(%d+)') do add_gap(s, tonumber(till), tonumber(us)) end
      reach(s, reached)
    end
    -- From the last answer of the former store to the beginning of this one nobody has grown older.
    local began = s.time - alive
    if began - heard > GAP then add_gap(s, began, began - heard - 1000000) end
  end
  local longest, left = tonumber(ARGV[18]), tonumber(ARGV[19])
  if left > 0 and longest >= s.window then s.window, s.window_till = longest, math.max(s.window_till, s.now + left) end
  s.reset = math.max(s.reset, tonumber(ARGV[9]))
  s.restored = s.seq + 1 -- as save_state is about to write it
  local version = tonumber(ARGV[11])
  if version > num(redis.call('HGET', LIVE, 'version')) then
    redis.call('DEL', LIVE)
    redis.call('HSET', LIVE, 'version', ARGV[11])
    for i = 0, tonumber(ARGV[21]) - 1 do
      redis.call('HSET', LIVE, ARGV[22 + 2 * i], ARGV[23 + 2 * i])
    end
  end
  local act = tonumber(ARGV[12])
  if act > 0 then
    s.held = math.max(s.now < s.held_until and s.held or 0, act)
    s.held_until = s.now + math.max(p.ttl, tonumber(ARGV[20]))
  end
  -- What an adaptive room had come to, until whoever leads says more.
  if s.target == 0 then s.target = tonumber(ARGV[16]) end
  -- A draw is made once: of two openings of one lottery the first counts, for orders were drawn from it.
  local opens, drawn = tonumber(ARGV[13]), tonumber(ARGV[14])
  if opens > s.opens or opens == s.opens and drawn > 0 and (s.drawn == 0 or drawn < s.drawn) then
    s.opens, s.drawn, s.opens_till = opens, drawn, s.wall + STANDS
  end
  if opens == s.opens then s.prequeued = math.max(s.prequeued, tonumber(ARGV[15])) end
  for i = 22 + 2 * tonumber(ARGV[21]), #ARGV, 5 do
    local kind, id, wall, at, client = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4]
    if kind == 'S' then
      if not redis.call('ZSCORE', REVOKED, id) then keep_session(s, p, id, at - s.time) end
    elseif kind == 'R' then
      out_of_line(id)
      revoke(s, p, id, s.now + at - s.time)
    else
      local g = grant(id)
      -- What one gateway knows as admitted, another may know as spent.
      if not g or (g.what == 'admitted' and kind ~= 'A') then
        out_of_line(id)
        redis.call('ZREM', ADMITTED, id)
        if kind == 'A' then
          redis.call('ZADD', ADMITTED, str(room_time(s, at)), id)
          put_grant(id, 'admitted', wall, 0, '')
        else
          put_grant(id, kind, wall, at > 0 and room_time(s, at) or 0, client)
          remember(s, p, id)
        end
      elseif kind == 'claimed' and g.what == 'claimed' and g.client == '' and client ~= '' then
        -- Another gateway's heartbeat came first; it does not know who claimed the ticket, and when.
        local claimed = at > 0 and room_time(s, at) or g.claimed
        put_grant(id, 'claimed', g.wall > 0 and math.min(g.wall, wall) or wall, math.min(claimed, g.claimed), client)
      end
    end
  end
end
save_state(s)
return head(s)

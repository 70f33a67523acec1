#!lua flags=allow-oom
-- room_restore: begins a room in this store, or gives it back what a gateway knows when the store lost it.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, fresh, adj, tick, fence, version, active, opens, drawn, prequeued, target, live_count, ...
-- RETURNS: {OK, epoch, seq, fence, room time, wall}
-- INVARIANT: a place survives (3), and the limit holds (1): what was admitted, ended or revoked stays so, the limiter starts empty.
-- INCLUDE: clock, limiter, room, meter, presence, lottery

-- epoch is '' for a gateway that knows nothing. After live_count pairs (field,
-- value) come groups of five: kind, id, wall, at, client; kind is A admitted
-- (at: room time), S session (at: its end), R revoked (at: when), or the word of
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

if lost then
  s.epoch = str(math.max(generation(s.epoch), generation(known)) + 1) .. '.' .. ARGV[5]
  if known == '' then
    -- Nobody remembers anything: a new room. A token of another epoch proves
    -- the contrary (room_enter), until then the bucket is full.
    s.virgin = 1
    s.tick = s.wall
    s.adj = 0
    s.at = s.wall
    begin_limiter(s, p, full(p))
  else
    s.virgin = 0
    s.busy = 1
    s.seq = math.max(s.seq, seq) + 1000
    s.adj = tonumber(ARGV[6])
    s.tick = tonumber(ARGV[7])
    begin_limiter(s, p, spent(p))
  end
  keep_time(s)
  if known ~= '' then
    s.hold = math.max(s.hold, s.now + HOLD)
    s.settle = s.now + SETTLE
    s.at = s.now
  end
  s.lease = 0 -- some of it may be spent
  s.born = s.now
  s.trimmed = math.floor(s.now / 1000000) - 900
  redis.call('DEL', SNAPSHOT)
else
  keep_time(s)
end

s.fence = math.max(s.fence, tonumber(ARGV[8]), 1)

if known ~= '' and known ~= s.epoch or lost and known ~= '' then
  if s.virgin == 1 then
    -- A gateway that knew nothing was first.
    s.virgin, s.busy = 0, 1
    begin_limiter(s, p, spent(p))
    s.adj = tonumber(ARGV[6])
    s.tick = tonumber(ARGV[7])
    -- It ran on the clock without adj. Were its room time kept, as the limiter's mark asks, everybody who
    -- waited before could be late by all the silences that were ever taken out.
    s.at = 0
    keep_time(s)
    s.at = s.now
    s.hold = s.now + HOLD
    s.settle = s.now + SETTLE
  end
  local version = tonumber(ARGV[9])
  if version > num(redis.call('HGET', LIVE, 'version')) then
    redis.call('DEL', LIVE)
    redis.call('HSET', LIVE, 'version', ARGV[9])
    for i = 0, tonumber(ARGV[15]) - 1 do
      redis.call('HSET', LIVE, ARGV[16 + 2 * i], ARGV[17 + 2 * i])
    end
  end
  local act = tonumber(ARGV[10])
  if act > 0 then
    s.held = math.max(s.now < s.held_until and s.held or 0, act)
    s.held_until = s.now + p.ttl
  end
  -- What an adaptive room had come to, until whoever leads says more.
  if s.target == 0 then s.target = tonumber(ARGV[14]) end
  -- A draw is made once: of two openings of one lottery the first counts, for orders were drawn from it.
  local opens, drawn = tonumber(ARGV[11]), tonumber(ARGV[12])
  if opens > s.opens or opens == s.opens and drawn > 0 and (s.drawn == 0 or drawn < s.drawn) then
    s.opens, s.drawn, s.opens_till = opens, drawn, s.wall + STANDS
  end
  if opens == s.opens then s.prequeued = math.max(s.prequeued, tonumber(ARGV[13])) end
  for i = 16 + 2 * tonumber(ARGV[15]), #ARGV, 5 do
    local kind, id, wall, at, client = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4]
    if kind == 'S' then
      if not redis.call('ZSCORE', REVOKED, id) then redis.call('ZADD', SESSIONS, 'GT', at, id) end
    elseif kind == 'R' then
      redis.call('ZADD', REVOKED, str(s.now), id)
      redis.call('ZREM', SESSIONS, id)
    else
      local g = grant(id)
      -- What one gateway knows as admitted, another may know as spent.
      if not g or (g.what == 'admitted' and kind ~= 'A') then
        out_of_line(id)
        redis.call('ZREM', ADMITTED, id)
        if kind == 'A' then
          redis.call('ZADD', ADMITTED, at, id)
          put_grant(id, 'admitted', wall, 0, '')
        else
          put_grant(id, kind, wall, tonumber(at), client)
          remember(s, p, id)
        end
      end
    end
  end
end
save_state(s)
return head(s)

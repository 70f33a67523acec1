#!lua
-- room_enter: gives arrivals a place or lets them in at once, and enrols tickets that the line does not hold.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each group code, order, wall of admission, reason}
-- INVARIANT: never over the limit (1); order (2): let in at once only while nobody waits; a ticket is spent once (4); an address
-- takes no more places than its window holds, each counted once, where it begins.
-- INCLUDE: clock, limiter, room, sessions, meter, presence, account, lottery, joins, returns

-- Groups of eleven: kind, id, client, grace, order, seen, ep, fn, ah, heard, back. grace is the seconds for which the ticket then counts
-- as present, its hold; order, seen and heard are order time.
--   arrive  a new id; order, seen, ep, fn, heard are empty
--   keyed   likewise, of a derived id, which the store may hold
--   find    the place of a derived id; none is given: U where the store holds none
--   account likewise, of an account: id is the first of the ids that it may have (place_of), and behind it, 16 bytes each, the
--           first of those that it had by other keys, whose places count and of which none is given; ep is the id of a place that becomes the account's, or ''
--           (U where it waits no longer); order is the id of the proof of work that a new place is given for, or '': a
--           proof is of the id that it was given for, and gives no other (E, proof)
--   held    the place that an account has, none is given: U where it has none
--   return  the place of a visitor who comes back with the pass of an ended session, in the order of that; id is derived from
--           the session, so it is one place however often the pass is shown; order is a proof's id, as with account; U where
--           the pass keeps no order, or its place is over
--   recall  likewise, and none is given: U where there is none, with the reason kept where return would give one
--   enrol   a token's place; ep is the token's epoch, '' when never enrolled; heard is when a gateway, with the store or
--           without, last answered its visitor; fn is 0 when its gateway had never heard the store: order and heard are then
--           that machine's clock; an order of 0 is that of now
--   signed  the same, by the gateway itself: it gave the place while the store was away
--   gather  a token without an order, before the opening of a lottery: it is confirmed,
--           and nothing is kept of it but their number
--   charge  one unit of the limiter without a session; id is empty
-- ah is the hash of the address (9 bytes) and of its network (9), or ''. A token of an epoch was counted when it got it.
-- back is the pass of an ended session (returns.lua) of account, return and recall, or ''; with enrol, signed and gather it is the
-- token's hold in seconds.
-- With W, P, A, C and S the reason of account, held, keyed, find, return and recall is n for a place that was given now, else o, and its id.
-- Codes: P confirmed before a lottery, O its opening (order: the order time, wall: when it was to be), W waiting,
-- C active, A admitted, L lapsed, E ended, X expired, Y and N for charge; J where the address has too many
-- places: the order is µs until it may have another, the reason which of address and network is full; S for an arrival
-- that finds the front full, however it joined: the signed order alone is the place until the first poll, and the store keeps
-- nothing of it. An arrival with the same derived id gets another order until then; the smallest one that is shown counts.
local s, err = open()
if not s then return err end
local p = policy()
draw(s, p)
local out = {}
local bucket = meter(s, p)

local line, most = redis.call('ZCARD', LINE), front(p)
local may = not p.paused and not p.reject and not p.gathering and p.min_wait == 0
local free = p.max_active > 0 and p.max_active - active(s) or math.huge
local last, let_in, joined, signed = 0, 0, 0, {}

local function put(code, ord, wall, reason)
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = code, str(ord), str(wall), reason
end

-- next_order is the order of now: orders of one call ascend, so that arrivals of one microsecond keep theirs.
local function next_order()
  last = math.max(s.time, last + 1)
  return last
end

-- clock_time returns the order time of a machine's clock: never later than now.
local function clock_time(us) return math.min(s.time, us + s.lead) end

-- late reports whether a token whose visitor was heard then is given up. Of one that its gateway signed before it heard the
-- store for the first time this store can have forgotten nothing but what is older than its room. hold is the token's: a former,
-- longer absence allowed it. It counts for no longer than a spent ticket is remembered.
local function late(fn, heard, hold)
  local us = age(s, heard)
  if fn == 0 then us = math.min(us, s.now - s.born) end
  return us > math.max(absence_of(s, p, s.now - us, MEMORY), math.min(1000000 * hold, MEMORY))
end

-- before_reset reports whether a token is from before the last reset of the room.
local function before_reset(fn, order)
  if fn > 0 then return fn < s.fence end
  return order > 0 and order <= s.reset
end

-- gathered confirms somebody before a lottery; first: for the first time, which counts; seen: when it was before.
local function gathered(first, ah, seen)
  if first then
    local count, wait, which = places(s, p, ah, s.time)
    if not count then return put('J', wait, 0, which) end
    count()
    joined = joined + 1
  end
  lot_heard(s, p, seen)
  s.busy = 1
  put('P', 0, 0, first and 'first' or '')
end

local function gather(id, client, grace, seen, ep, fn, ah, heard, hold)
  if fn > 0 and fn < s.fence then return put('X', 0, 0, 'reset') end
  local code, wall, reason = settled(s, p, id, client)
  if code then return put(code, 0, wall, reason) end
  local ord = waiting(s, p, id, grace)
  if ord then return put('W', ord, 0, '') end
  -- Confirmed now it would not be drawn, though it may have been confirmed before.
  if p.lottery == 1 and s.drawn > 0 then return put('O', s.drawn, s.opens, '') end
  local new = ep == ''
  -- Lots are not to be put by: neither by who comes back for the opening, nor by an account that left and took another.
  if not new and late(fn, heard, hold) then return put('X', 0, 0, 'late') end
  -- In a store that is new, and the room is not, nobody has counted them; their addresses' places were counted once.
  local first = new or ep ~= s.epoch and s.virgin > 0
  gathered(first, new and ah or '', not first and seen or nil)
end

-- forward moves a place in line or parked to an earlier order.
local function forward(id, ord)
  for _, key in ipairs({ LINE, PARKED }) do
    local have = redis.call('ZSCORE', key, id)
    if have and ord < tonumber(have) then
      redis.call('ZADD', key, str(ord), id)
      if key == LINE then s.came, s.abandons = s.came + 1, s.abandons + 1 end
    end
  end
end

-- arrive gives an arrival its place. old is the order that its visitor keeps; nil: that of now.
local function arrive(kind, id, client, grace, ah, old)
  local code, wall, reason = settled(s, p, id, client)
  if code then return put(code, 0, wall, reason) end
  local ord = waiting(s, p, id, grace)
  if ord then
    if old and old < ord then
      forward(id, old)
      ord = old
    end
    return put('W', ord, 0, '')
  end
  if kind == 'find' then return put('U', 0, 0, '') end
  if p.gathering then return gathered(true, ah) end
  local count, wait, which = places(s, p, ah, s.time)
  if not count then return put('J', wait, 0, which) end
  joined = joined + 1
  s.busy = 1
  if may and line == 0 and s.now >= s.hold and free >= 1 and bucket.available() >= 1 then
    count()
    bucket.take(1)
    free = free - 1
    let_in = let_in + 1
    keep_session(s, p, id)
    put_grant(id, 'claimed', s.wall, s.now, client)
    remember(s, p, id)
    count_wait(s, 0)
    return put('C', s.time, s.wall, '')
  end
  ord = old or next_order()
  if line >= most and not old then
    local second = math.floor(ord / 1000000)
    signed[second] = (signed[second] or 0) + 1
    return put('S', ord, 0, '')
  end
  count()
  enrolled(s, id, ord, grace)
  line = line + 1
  put('W', ord, 0, '')
end

local function enrol(id, client, grace, ord, seen, ep, fn, ah, heard, hold)
  if fn == 0 and ord > 0 then ord, heard = clock_time(ord), clock_time(heard) end
  if before_reset(fn, ord) then return put('X', 0, 0, 'reset') end
  local code, wall, reason = settled(s, p, id, client)
  if code then return put(code, 0, wall, reason) end
  local have = waiting(s, p, id, grace)
  -- Whoever came back without the store kept an older order; a place counts when it is joined.
  local joined_at = math.max(ord, seen)
  local drawn = ord < s.drawn and seen < s.drawn and s.drawn <= (have or 0)
  if have and (ep ~= s.epoch or drawn) and ord > 0 and ord < have and not late(fn, heard, hold) then
    -- The store lost the room, a lottery has opened, or the id was signed an order more than once, and another device of the
    -- account, or a repeated join with the same key, came first: the older place counts. An order that a join limit has
    -- postponed stays postponed.
    local fits = ord
    if ep == '' then
      local count, later = places(s, p, ah, joined_at)
      fits = not count and have or later > joined_at and later or ord
    end
    if fits < have then
      redis.call('ZADD', LINE, str(fits), id)
      s.came, s.abandons, have = s.came + 1, s.abandons + 1, fits
      if ep == '' then redis.call('HINCRBY', PENDING, str(math.floor(ord / 1000000)), -1) end
    end
  end
  if have then return put('W', have, 0, '') end
  local fresh = ord == 0
  if fresh then
    if ep == '' then heard = s.time end
    ord = next_order()
  end
  if late(fn, heard, hold) then return put('X', 0, 0, 'late') end
  if ep ~= '' and ep ~= s.epoch and s.virgin == 1 then
    -- The store is new but the room is not: nobody remembered it.
    s.virgin = 2
    bucket.empty()
    s.hold = s.now + HOLD
  end
  if ord > s.time and not fresh then
    if ord - s.time <= AHEAD then reach(s, ord) end
    ord = math.min(ord, s.time)
  end
  local second = math.floor(ord / 1000000)
  if ep == '' then
    local at = fresh and ord or joined_at
    local count, fits, which = places(s, p, ah, at)
    if not count then return put('J', fits, 0, which) end
    count()
    if fits > at then ord = fits end
  end
  if fresh and ep == '' then joined = joined + 1 end
  s.busy = 1
  enrolled(s, id, ord, grace)
  line = line + 1
  if ep == '' and fn > 0 and not fresh then redis.call('HINCRBY', PENDING, str(second), -1) end
  put('W', ord, 0, '')
end

-- adopt gives an account the place in line of a ticket that is no account's; that ticket has then left. Where the account has a
-- place in line already (has), that one takes over the order if it is earlier.
local function adopt(from, id, grace, has)
  local ord = waiting(s, p, from, grace)
  if not ord then return false end
  out_of_line(from)
  put_grant(from, 'left', 0, 0, '')
  remember(s, p, from)
  s.abandons = s.abandons + 1
  if has then forward(has, ord) end
  if not id then return false end
  joined = joined + 1
  enrolled(s, id, ord, grace)
  put('W', ord, 0, '')
  return true
end

-- name puts the id into the reason of the last answer, and whether the place was given now: joined was before then.
local function name(id, before)
  local code = out[#out - 3]
  if code == 'W' or code == 'P' or code == 'A' or code == 'C' or code == 'S' then out[#out] = (joined > before and 'n' or 'o') .. id end
end

-- proof_spent reports whether a proof has made another place than id.
local function proof_spent(proof, id)
  return (grant(proof) or { client = id }).client ~= id or redis.call('ZSCORE', LINE, proof) or redis.call('ZSCORE', PARKED, proof)
end

local function spend(proof, id)
  put_grant(proof, 'spent', 0, 0, id)
  remember(s, p, proof)
end

local function account(kind, bases, client, grace, proof, from, ah, back)
  local id, wall, alive = place_of(s, p, string.sub(bases, 1, 16))
  for at = 17, #bases, 16 do
    if alive then break end
    local former, since, here = place_of(s, p, string.sub(bases, at, at + 15))
    if here then id, wall, alive = former, since, true end
  end
  local before = joined
  if alive and from ~= '' then adopt(from, nil, grace, id) end
  if wall then
    put('C', 0, wall, '')
  elseif alive then
    arrive(kind, id, client, grace, ah)
  elseif kind == 'held' then
    return put('U', 0, 0, '')
  elseif not id then
    return put('E', 0, 0, 'spent')
  elseif proof ~= '' and proof_spent(proof, id) then
    return put('E', 0, 0, 'proof')
  elseif from == '' then
    local pass = back ~= '' and read_pass(back)
    local old = pass and kept(s, p, pass)
    arrive(kind, id, client, grace, ah, old)
    if old and joined > before then give_back(s, p, pass, id) end
  elseif p.gathering then -- of the place that becomes the account's the line holds nothing: it is not drawn besides
    put_grant(from, 'left', 0, 0, '')
    remember(s, p, from)
    lot_left(s, p)
    arrive(kind, id, client, grace, '') -- its address's place was counted with the other
  elseif not adopt(from, id, grace) then
    return put('U', 0, 0, '')
  end
  if proof ~= '' and joined > before then spend(proof, id) end
  name(id, before)
end

-- returns is return and recall. The place of a pass that was given is that which the store has noted, whatever key id is derived by.
local function returns(kind, id, client, grace, proof, ah, pass)
  local g, before = grant(pass.session), joined
  local given = g and g.what == 'returned'
  if given then id = g.client end
  local old = not given and kept(s, p, pass)
  if not given and not old then return put('U', 0, 0, '') end
  local code = settled(s, p, id, client)
  if code and code ~= 'A' and code ~= 'C' or not code and num(redis.call('ZSCORE', SESSIONS, id)) > s.now then return put('U', 0, 0, '') end
  if given then
    arrive('find', id, client, grace, ah)
  elseif kind == 'recall' then
    return put('U', 0, 0, 'kept')
  elseif proof ~= '' and proof_spent(proof, id) then
    return put('E', 0, 0, 'proof')
  else
    arrive(kind, id, client, grace, ah, old)
    local answer = out[#out - 3]
    if answer == 'W' or answer == 'A' or answer == 'C' then give_back(s, p, pass, id) end
    if proof ~= '' and joined > before then spend(proof, id) end
  end
  name(id, before)
end

for i = 5, #ARGV, 11 do
  local kind, id, client, grace = ARGV[i], ARGV[i + 1], ARGV[i + 2], num(ARGV[i + 3])
  if kind == 'arrive' then
    arrive(kind, id, client, grace, ARGV[i + 8])
  elseif kind == 'keyed' or kind == 'find' then
    local before = joined
    arrive(kind, id, client, grace, ARGV[i + 8])
    name(id, before)
  elseif kind == 'account' or kind == 'held' then
    account(kind, id, client, grace, ARGV[i + 4], ARGV[i + 6], ARGV[i + 8], ARGV[i + 10])
  elseif kind == 'return' or kind == 'recall' then
    returns(kind, id, client, grace, ARGV[i + 4], ARGV[i + 8], read_pass(ARGV[i + 10]))
  elseif kind == 'enrol' or kind == 'signed' then
    -- The room was idle when the store went away, and was not meanwhile: other
    -- gateways' visitors are to be heard too.
    if kind == 'signed' and s.now < s.gapped + HOLD then s.hold = math.max(s.hold, s.gapped + HOLD) end
    enrol(id, client, grace, tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), ARGV[i + 6], tonumber(ARGV[i + 7]), ARGV[i + 8],
      tonumber(ARGV[i + 9]), num(ARGV[i + 10]))
  elseif kind == 'gather' then
    gather(id, client, grace, tonumber(ARGV[i + 5]), ARGV[i + 6], tonumber(ARGV[i + 7]), ARGV[i + 8], tonumber(ARGV[i + 9]),
      num(ARGV[i + 10]))
  elseif may and line == 0 and s.now >= s.hold and bucket.available() >= 1 and free >= 1 then
    bucket.take(1)
    put('Y', 0, 0, '')
  else
    put('N', 0, 0, '')
  end
end

bucket.save()
if slots then count_lots(s, p) end
s.joins = s.joins + joined
s.claims = s.claims + let_in
if joined > 0 then count_minute(s, 'j', joined) end
for second, n in pairs(signed) do redis.call('HINCRBY', PENDING, str(second), n) end
count_admissions(s, let_in)
s.time = math.max(s.time, last)
save_state(s)
local answer = head(s)
for i = 1, #out do answer[6 + i] = out[i] end
return answer

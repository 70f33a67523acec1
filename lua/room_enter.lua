#!lua
-- room_enter: assigns each arrival a place or a session, and enrols tickets that the queue does not hold.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each group code, order, wall of admission, reason}
-- REPLY CONFIRMED:   'P'  waits in the pre-queue of a lottery; the reason is first where it is counted from now on
-- REPLY OPENED:      'O'  the lottery has opened: order is the order time of the opening, wall the time that was configured
-- REPLY SIGNED:      'S'  the front is full: the signed order alone is the place until the first poll, and the store keeps nothing of it
-- REPLY TOO_MANY:    'J'  the address has too many places: order is the µs until it may have another, the reason is address or network, whichever is full
-- REPLY CHARGED:     'Y'  the limiter was charged
-- REPLY NOT_CHARGED: 'N'  the limiter was not charged
-- REPLY MUST_WAIT:   'M'  a group after session_only: no session can begin now, and no place was given
-- REPLY NEW_PLACE:   'n'  begins the reason of a place that was given now; the place's id follows
-- REPLY OLD_PLACE:   'o'  begins the reason of a place that was there before; the place's id follows
-- INVARIANT: never over the limit (P1); an arrival is admitted immediately only while nobody waits (P2); a ticket is spent once (P4); an address
-- takes no more places than its window holds, each counted once, where it begins.
-- INCLUDE: clock, limiter, seq, room, sessions, meter, presence, account, lottery, joins, returns

-- Groups, each a kind and its arguments:
--   arrive   id, client, hold, address                                a place for a new, random id
--   keyed    id, client, hold, address                                a place for a derived id, which the store may hold already
--   find     id, client, hold                                         the place of a derived id; UNKNOWN where there is none
--   account  id, other_ids, client, hold, address, proof, from, pass  the place of an account; UNKNOWN where from waits no longer
--   held     id, other_ids, client, hold                              the place that an account has; UNKNOWN where there is none
--   return   id, client, hold, address, proof, pass                   the place of a visitor who returns with the pass of an ended session, at the order
--                                                                     of that pass; UNKNOWN where the pass keeps no order, or its place is over
--   recall   id, client, hold, pass                                   as return, without giving a place: UNKNOWN, with the reason kept where return would give one
--   enrol    id, client, hold, order, seen, epoch, fence, address, replied, token_hold   the place of a token
--   signed   as enrol                                                 a place that the calling gateway gave while the store was away
--   prequeue id, client, hold, seen, epoch, fence, address, replied, token_hold   a token of the pre-queue, without an order: only the number of such tickets is kept
--   charge   (nothing)                                                charges the limiter one unit, without a session
--   session_only (nothing)                                            the next group starts a session or replies MUST_WAIT; it gives no place
--
-- hold: seconds for which the ticket then counts as present; token_hold: that of the token. order (0: now), seen, replied: order time.
-- epoch: of the token, '' when it was never enrolled; its place counts against the address then. fence: of the token, 0 where its
-- gateway had never reached the store, and order and replied are that machine's clock. replied: when a gateway, with the store or without,
-- last replied to the visitor. address: the hash of the address (9 bytes) and of its network (9), or ''. id of an account: the first
-- of its ids; other_ids: the first ids that it had by other keys, 16 bytes each, whose places count while no new place is given there.
-- proof: the id of the proof of work that a new place is given for, or ''; one proof makes one place (ENDED, proof). from: the ticket whose
-- place becomes the account's, or ''. pass: see lib/returns.lua, or ''. The id of return is derived from the session, so that the visitor
-- has one place however often the pass is shown.
--
-- An arrival with the same derived id that is SIGNED again has another order; the smallest one that is shown counts.
local s, err = open_room()
if not s then return err end
local p = policy()
update_lottery(s, p)
local limit = room_limiter(s, p)
local length, front_size = redis.call('ZCARD', QUEUE), front(p)
local open = not p.paused and not p.reject and not p.sold_out and not p.prequeue and p.min_wait == 0
local free = p.max_active > 0 and p.max_active - active(s) or math.huge
local last_order, admitted, joined, signed = 0, 0, 0, {}
local out = {} -- four values for each group

local function put(code, order, wall, reason)
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = code, str(order), str(wall), reason
end

-- put_id adds the id to the reason of the last reply, if that has a place. The place is new if joined has grown since joined_before.
local function put_id(id, joined_before)
  local code = out[#out - 3]
  if code == REPLY_WAITING or code == REPLY_CONFIRMED or code == REPLY_ADMITTED or code == REPLY_ACTIVE or code == REPLY_SIGNED then
    out[#out] = (joined > joined_before and REPLY_NEW_PLACE or REPLY_OLD_PLACE) .. id
  end
end

-- next_order returns the order of now. Orders of one call ascend, so that arrivals of the same microsecond keep their sequence.
local function next_order()
  last_order = math.max(s.time, last_order + 1)
  return last_order
end

local function can_admit() return open and length == 0 and s.now >= s.hold and free >= 1 and limit.available() >= 1 end

local function admit(id, client)
  limit.take(1)
  free = free - 1
  admitted = admitted + 1
  keep_session(s, p, id)
  put_grant(id, 'claimed', s.wall, s.now, client)
  remember(s, p, id)
  count_wait(s, 0)
  put(REPLY_ACTIVE, s.time, s.wall, '')
end

local function enqueue(id, order, hold)
  enrol_ticket(s, id, order, hold)
  length = length + 1
  put(REPLY_WAITING, order, 0, '')
end

local function sign(order)
  local second = math.floor(order / 1000000)
  signed[second] = (signed[second] or 0) + 1
  put(REPLY_SIGNED, order, 0, '')
end

-- move_forward moves a waiting ticket to an earlier order.
local function move_forward(id, order)
  for _, key in ipairs({ QUEUE, PARKED }) do
    local have = redis.call('ZSCORE', key, id)
    if have and order < tonumber(have) then
      redis.call('ZADD', key, str(order), id)
      if key == QUEUE then s.came, s.abandons = s.came + 1, s.abandons + 1 end
    end
  end
end

-- put_known replies for a ticket that the store holds, and reports whether it does. order: an earlier one that a waiting ticket moves
-- to, or nil.
local function put_known(id, client, hold, order)
  local code, wall, reason = admission_state(s, p, id, client)
  if code then
    put(code, 0, wall, reason)
    return true
  end
  local have = renew_waiting(s, p, id, hold)
  if not have then return false end
  if order and order < have then
    move_forward(id, order)
    have = order
  end
  put(REPLY_WAITING, have, 0, '')
  return true
end

-- confirm counts a ticket of the pre-queue, seen when it was confirmed before, nil for the first time: then its address is charged a place.
local function confirm(address, seen)
  if not seen then
    local count, wait, which = join_place(s, p, address, s.time)
    if not count then return put(REPLY_TOO_MANY, wait, 0, which) end
    count()
    joined = joined + 1
  end
  count_prequeued(s, p, seen)
  s.busy = 1
  put(REPLY_CONFIRMED, 0, 0, seen and '' or 'first')
end

-- session_only is set while the group after session_only is processed.
local session_only = false

-- arrive assigns a place to an arrival. order: an order that the visitor keeps, nil for the order of now.
local function arrive(id, client, hold, address, order)
  if put_known(id, client, hold, order) then return end
  if session_only and not can_admit() then return put(REPLY_MUST_WAIT, 0, 0, '') end
  if p.prequeue then return confirm(address) end
  local count, wait, which = join_place(s, p, address, s.time)
  if not count then return put(REPLY_TOO_MANY, wait, 0, which) end
  joined = joined + 1
  s.busy = 1
  if can_admit() then
    count()
    return admit(id, client)
  end
  if length >= front_size and not order then return sign(next_order()) end
  count()
  enqueue(id, order or next_order(), hold)
end

local function find(id, client, hold)
  if not put_known(id, client, hold) then put(REPLY_UNKNOWN, 0, 0, '') end
end

local function arrive_keyed(id, client, hold, address)
  local before = joined
  arrive(id, client, hold, address)
  put_id(id, before)
end

local function find_keyed(id, client, hold)
  find(id, client, hold)
  put_id(id, joined)
end

-- token holds the token of the current group; one table serves all groups. joined is the time at which the place counts for the join
-- limit: not its order, because a visitor who returned without the store kept an older one.
local token = { order = 0, seen = 0, epoch = '', fence = 0, address = '', replied = 0, hold = 0, joined = 0 }

-- late reports whether the token's visitor was silent for too long. For a token whose gateway had never reached the store the silence counts
-- from the room's beginning at most: this store cannot have forgotten an older ticket. A longer hold, which a former, longer absence allowed,
-- still counts, but for no longer than a spent ticket is remembered.
local function late()
  local us = age(s, token.replied)
  if token.fence == 0 then us = math.min(us, s.now - s.born) end
  return us > math.max(absence_of(s, p, s.now - us, MEMORY), math.min(1000000 * token.hold, MEMORY))
end

local function prequeue(id, client, hold, seen, epoch, fence, address, replied, token_hold)
  token.fence, token.replied, token.hold = tonumber(fence), tonumber(replied), num(token_hold)
  if token.fence > 0 and token.fence < s.fence then return put(REPLY_EXPIRED, 0, 0, 'reset') end
  if put_known(id, client, num(hold)) then return end
  -- A ticket that is confirmed only now would not be drawn, although it may have been confirmed before.
  if p.lottery == 1 and s.drawn > 0 then return put(REPLY_OPENED, s.drawn, s.opens, '') end
  -- Late tokens are refused so that nobody can keep tickets for the draw without polling.
  if epoch ~= '' and late() then return put(REPLY_EXPIRED, 0, 0, 'late') end
  -- A new store of an older room has not counted this ticket yet; its address was charged when it joined.
  local counted = epoch ~= '' and (epoch == s.epoch or s.fresh_store == 0)
  confirm(epoch == '' and address or '', counted and tonumber(seen) or nil)
end

-- older_order returns the order that a waiting ticket now has: that of its token, if that is earlier than the order in the queue (have) and
-- counts. The two differ if the store has lost the room, a lottery has opened, or the id has several signed orders of which a later one came
-- first. An order that a join limit has postponed stays postponed.
local function older_order(id, have)
  local before_draw = token.order < s.drawn and token.seen < s.drawn and s.drawn <= have
  if token.epoch == s.epoch and not before_draw or token.order <= 0 or token.order >= have or late() then return have end
  local order = token.order
  if token.epoch == '' then
    local count, postponed = join_place(s, p, token.address, token.joined)
    order = not count and have or postponed > token.joined and postponed or order
  end
  if order >= have then return have end
  redis.call('ZADD', QUEUE, str(order), id)
  s.came, s.abandons = s.came + 1, s.abandons + 1
  if token.epoch == '' then redis.call('HINCRBY', PENDING, str(math.floor(token.order / 1000000)), -1) end
  return order
end

-- prove_older_room is called for a token of another epoch: the store is new and the room is older, although no gateway has restored it.
local function prove_older_room()
  s.fresh_store = 2
  limit.empty()
  s.hold = s.now + HOLD
end

-- enrol_unknown enrols a token whose place the store does not hold.
local function enrol_unknown(id, hold)
  local newcomer, unordered = token.epoch == '', token.order == 0
  if unordered then
    if newcomer then token.replied = s.time end
    token.order = next_order()
    token.joined = token.order
  end
  if late() then return put(REPLY_EXPIRED, 0, 0, 'late') end
  if not newcomer and token.epoch ~= s.epoch and s.fresh_store == 1 then prove_older_room() end
  local order = token.order
  if order > s.time and not unordered then
    if order - s.time <= AHEAD then reach(s, order) end
    order = math.min(order, s.time)
  end
  local second = math.floor(order / 1000000)
  if newcomer then
    local count, postponed, which = join_place(s, p, token.address, token.joined)
    if not count then return put(REPLY_TOO_MANY, postponed, 0, which) end
    count()
    if postponed > token.joined then order = postponed end
    if unordered then
      joined = joined + 1
    elseif token.fence > 0 then
      redis.call('HINCRBY', PENDING, str(second), -1)
    end
  end
  s.busy = 1
  enqueue(id, order, hold)
end

local function enrol(id, client, hold, order, seen, epoch, fence, address, replied, token_hold)
  order, fence, replied = tonumber(order), tonumber(fence), tonumber(replied)
  if fence == 0 and order > 0 then -- they are by a machine's clock; now at the latest
    order, replied = math.min(s.time, order + s.lead), math.min(s.time, replied + s.lead)
  end
  if fence > 0 and fence < s.fence or fence == 0 and order > 0 and order <= s.reset then return put(REPLY_EXPIRED, 0, 0, 'reset') end
  local code, wall, reason = admission_state(s, p, id, client)
  if code then return put(code, 0, wall, reason) end
  seen, hold = tonumber(seen), num(hold)
  token.order, token.seen, token.epoch, token.fence, token.address, token.replied, token.hold = order, seen, epoch, fence, address, replied, num(token_hold)
  token.joined = math.max(order, seen)
  local have = renew_waiting(s, p, id, hold)
  if have then
    put(REPLY_WAITING, older_order(id, have), 0, '')
  else
    enrol_unknown(id, hold)
  end
end

-- enrol_signed enrols a place that the calling gateway gave while the store was away. If the room was idle when the store went away, nobody
-- is admitted yet: visitors of other gateways must be able to come first.
local function enrol_signed(...)
  if s.now < s.gapped + HOLD then s.hold = math.max(s.hold, s.gapped + HOLD) end
  enrol(...)
end

local function forget_ticket(id)
  put_grant(id, 'left', 0, 0, '')
  remember(s, p, id)
end

-- take_over ends a waiting ticket in favour of an account's place, which gets the ticket's order if that is earlier. It returns that order,
-- or nil if the ticket does not wait.
local function take_over(from, id, hold)
  local order = renew_waiting(s, p, from, hold)
  if not order then return nil end
  remove_from_queue(from)
  forget_ticket(from)
  s.abandons = s.abandons + 1
  if id then move_forward(id, order) end
  return order
end

-- proof_spent reports whether a proof of work has made another place than id.
local function proof_spent(proof, id)
  return proof ~= '' and ((grant(proof) or { client = id }).client ~= id or redis.call('ZSCORE', QUEUE, proof) or redis.call('ZSCORE', PARKED, proof))
end

-- spend_proof notes that a proof has made the place id, if that was given now.
local function spend_proof(proof, id, joined_before)
  if proof == '' or joined == joined_before then return end
  put_grant(proof, 'spent', 0, 0, id)
  remember(s, p, proof)
end

-- find_account returns an account's place: the id, the wall time of its admission where it is a session, and whether it is alive;
-- else the id for a new place, nil when all ids are used up.
local function find_account(id, other_ids)
  local own, wall, alive = account_place(s, p, id)
  for at = 1, #other_ids, 16 do
    if alive then break end
    local other, other_wall, other_alive = account_place(s, p, string.sub(other_ids, at, at + 15))
    if other_alive then own, wall, alive = other, other_wall, true end
  end
  return own, wall, alive
end

-- join_account assigns a new place to an account: at the order that its visitor keeps (pass), or at that of the ticket from. It reports
-- whether the account has a place, or would get one later.
local function join_account(id, client, hold, address, from, pass)
  if from == '' then
    local before = joined
    pass = pass ~= '' and read_pass(pass)
    local order = pass and kept_order(s, p, pass)
    arrive(id, client, hold, address, order)
    if order and joined > before then close_returned_session(s, p, pass, id) end
  elseif p.prequeue then -- the queue holds nothing of the other place; its address's place was counted with it
    forget_ticket(from)
    uncount_prequeued(s, p)
    arrive(id, client, hold, '')
  else
    local order = take_over(from, nil, hold)
    if not order then
      put(REPLY_UNKNOWN, 0, 0, '')
      return false
    end
    joined = joined + 1
    enrol_ticket(s, id, order, hold)
    put(REPLY_WAITING, order, 0, '')
  end
  return true
end

local function account(may_join, id, other_ids, client, hold, address, proof, from, pass)
  local before, wall, alive = joined, nil, nil
  hold = num(hold)
  id, wall, alive = find_account(id, other_ids)
  if alive and from ~= '' then take_over(from, id, hold) end
  if wall then
    put(REPLY_ACTIVE, 0, wall, '')
  elseif alive then
    arrive(id, client, hold, address)
  elseif not may_join then
    return put(REPLY_UNKNOWN, 0, 0, '')
  elseif not id then
    return put(REPLY_ENDED, 0, 0, 'spent')
  elseif proof_spent(proof, id) then
    return put(REPLY_ENDED, 0, 0, 'proof')
  elseif not join_account(id, client, hold, address, from, pass) then
    return
  end
  spend_proof(proof, id, before)
  put_id(id, before)
end

-- return_place assigns a place at the order of the pass to a visitor who returns with it, if may_join. If the pass was used before, the
-- visitor has the place that the store has noted, even if id is now derived by another key.
local function return_place(may_join, id, client, hold, address, proof, pass)
  pass = read_pass(pass)
  local g, before = grant(pass.session), joined
  local given = g and g.what == 'returned'
  if given then id = g.client end
  local order = not given and kept_order(s, p, pass)
  if not given and not order then return put(REPLY_UNKNOWN, 0, 0, '') end
  local code = admission_state(s, p, id, client)
  if code and code ~= REPLY_ADMITTED and code ~= REPLY_ACTIVE or not code and num(redis.call('ZSCORE', SESSIONS, id)) > s.now then
    return put(REPLY_UNKNOWN, 0, 0, '')
  end
  if given then
    find(id, client, hold)
  elseif not may_join then
    return put(REPLY_UNKNOWN, 0, 0, 'kept')
  elseif proof_spent(proof, id) then
    return put(REPLY_ENDED, 0, 0, 'proof')
  else
    arrive(id, client, hold, address, order)
    code = out[#out - 3]
    if code == REPLY_WAITING or code == REPLY_ADMITTED or code == REPLY_ACTIVE then close_returned_session(s, p, pass, id) end
    spend_proof(proof, id, before)
  end
  put_id(id, before)
end

local function charge()
  local may = can_admit()
  if may then limit.take(1) end
  put(may and REPLY_CHARGED or REPLY_NOT_CHARGED, 0, 0, '')
end

-- enter processes the group of a kind whose arguments begin at ARGV[i], and returns where the next group begins.
local function enter(kind, i)
  if kind == 'arrive' then
    arrive(ARGV[i], ARGV[i + 1], num(ARGV[i + 2]), ARGV[i + 3])
    return i + 4
  elseif kind == 'enrol' then
    enrol(unpack(ARGV, i, i + 9))
    return i + 10
  elseif kind == 'signed' then
    enrol_signed(unpack(ARGV, i, i + 9))
    return i + 10
  elseif kind == 'keyed' then
    arrive_keyed(ARGV[i], ARGV[i + 1], num(ARGV[i + 2]), ARGV[i + 3])
    return i + 4
  elseif kind == 'find' then
    find_keyed(ARGV[i], ARGV[i + 1], num(ARGV[i + 2]))
    return i + 3
  elseif kind == 'account' then
    account(true, unpack(ARGV, i, i + 7))
    return i + 8
  elseif kind == 'held' then
    account(false, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], '', '', '', '')
    return i + 4
  elseif kind == 'return' then
    return_place(true, ARGV[i], ARGV[i + 1], num(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
    return i + 6
  elseif kind == 'recall' then
    return_place(false, ARGV[i], ARGV[i + 1], num(ARGV[i + 2]), '', '', ARGV[i + 3])
    return i + 4
  elseif kind == 'prequeue' then
    prequeue(unpack(ARGV, i, i + 8))
    return i + 9
  elseif kind == 'charge' then
    charge()
    return i
  end
  error({ err = 'ERR unknown kind ' .. kind })
end

local i = 5
while i <= #ARGV do
  session_only = ARGV[i] == 'session_only'
  if session_only then i = i + 1 end
  i = enter(ARGV[i], i + 1)
end
limit.save()
if prequeue_slots then save_prequeue(s, p) end
s.joins = s.joins + joined
s.claims = s.claims + admitted
if joined > 0 then count_minute(s, 'j', joined) end
for second, n in pairs(signed) do redis.call('HINCRBY', PENDING, str(second), n) end
count_admissions(s, admitted)
s.time = math.max(s.time, last_order)
return save_and_reply(s, out)

-- account: finds the place of an account.

-- An account's ids differ in their last byte. A later id is used where the place of the first has ended and that is still remembered. From
-- then on the first is remembered for a month, longer than any session: where it is not remembered, the other ids need not be read.
local GENERATIONS, MONTH = 32, 2678400000000

-- account_id_state returns, for an account's place under one id, the wall time of its admission where it is a session, whether it is
-- alive, and whether the id is free.
local function account_id_state(s, p, id, session, queued, revoked)
  local g = grant(id)
  if num(session) > s.now then return g and g.wall or 0, true end
  if queued then
    if not absent(s, p, last_checked(id)) then return nil, true end
    reap(s, id) -- no tick has reaped it yet
  end
  if g and g.what == 'admitted' and before_evacuation(s, num(redis.call('ZSCORE', ADMITTED, id))) then
    take_back(id)
    g = nil
  end
  if g and g.what == 'admitted' then
    if num(redis.call('ZSCORE', ADMITTED, id)) + p.claim_window >= s.now then return nil, true end
    lapse(s, p, id, g)
  end
  return nil, false, not g and not revoked
end

-- account_place returns the id of an account's place, given the first of its ids, the wall time of its admission where it is a session,
-- and whether it is alive. Without a place it returns the id for a new one, nil when all are used up.
local function account_place(s, p, base)
  local wall, alive, free = account_id_state(s, p, base, redis.call('ZSCORE', SESSIONS, base),
    redis.call('ZSCORE', QUEUE, base) or redis.call('ZSCORE', PARKED, base), redis.call('ZSCORE', REVOKED, base))
  if alive or free and not redis.call('ZSCORE', ENDED, base) then return base, wall, alive end
  local ids, stem, from = {}, string.sub(base, 1, 15), string.byte(base, 16)
  for n = 1, GENERATIONS - 1 do ids[n] = stem .. string.char((from + n) % 256) end
  local sessions, revoked = redis.call('ZMSCORE', SESSIONS, unpack(ids)), redis.call('ZMSCORE', REVOKED, unpack(ids))
  local queued, parked = redis.call('ZMSCORE', QUEUE, unpack(ids)), redis.call('ZMSCORE', PARKED, unpack(ids))
  redis.call('ZADD', ENDED, 'GT', str(s.now + MONTH), base)
  local first
  for n, id in ipairs(ids) do
    wall, alive, free = account_id_state(s, p, id, sessions[n], queued[n] or parked[n], revoked[n])
    if alive then return id, wall, true end
    if free then first = first or id end
  end
  return first
end

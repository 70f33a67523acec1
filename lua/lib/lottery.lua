-- lottery: the opening of a room that is drawn, and how many gather for it.

-- spread is the time within which all who gathered for a lottery are told to poll after its opening.
local function spread(s, p)
  local us = p.polls > 0 and math.floor(s.prequeued * 1000000 / p.polls) or 0
  return math.max(1000000, math.min(us, math.floor(p.absence / 4)))
end

-- longest_advised is the longest interval that those who gather are advised to poll at (gateway/pace: Gathering), with its jitter, by the
-- absence of today or that by which they were counted last.
local function longest_advised(s, p)
  local absence = math.max(p.absence, num(redis.call('HGET', STATE, 'slots_absence')))
  return math.ceil(1.2 * math.min(math.max(60000000, spread(s, p)), absence / 4))
end

-- Of those who gather nothing is kept but how many were heard, in slots of an eighth of absence: {till, n}, ascending, each
-- with those who were heard last before till (order time) and not before the till of the slot ahead. Whoever is heard again
-- moves to the newest, by the time in the token. So who leaves counts no more, and who is silent for absence an eighth of it
-- later at most. Their number is never too small: a token that is shown again after it was renewed elsewhere moves another's
-- place, and that one's owner is counted anew.
local SLOTS = 32
local slots

local function load_slots(s)
  if slots then return end
  slots = {}
  local sum = 0
  for till, n in string.gmatch(redis.call('HGET', STATE, 'slots') or '', '(%d+):(%d+)') do
    slots[#slots + 1] = { till = tonumber(till), n = tonumber(n) }
    sum = sum + tonumber(n)
  end
  -- A store that was restored knows their number alone.
  if s.prequeued > sum then
    if #slots == 0 then slots[1] = { till = s.time, n = 0 } end
    slots[1].n = slots[1].n + s.prequeued - sum
  end
end

local function slot_of(seen)
  for _, slot in ipairs(slots) do
    if slot.till > seen then return slot end
  end
end

-- lot_heard counts somebody who gathers; seen is when that ticket was heard before, nil for the first time.
local function lot_heard(s, p, seen)
  load_slots(s)
  if #slots == 0 or slots[#slots].till <= s.time then
    slots[#slots + 1] = { till = s.time + math.floor(p.absence / 8), n = 0 }
  end
  local from = seen and slot_of(seen)
  if from and from.n > 0 then from.n = from.n - 1 end
  slots[#slots].n = slots[#slots].n + 1
end

-- lot_left takes one off who was heard then; nil: that is not known.
local function lot_left(s, p, seen)
  if seen and age(s, seen) > p.absence then return end
  load_slots(s)
  local from = seen and slot_of(seen)
  if from and from.n > 0 then
    from.n = from.n - 1
    return
  end
  for _, slot in ipairs(slots) do
    if slot.n > 0 then
      slot.n = slot.n - 1
      return
    end
  end
end

-- count_lots forgets who was silent for too long, and says how many gather.
local function count_lots(s, p)
  load_slots(s)
  while slots[1] and age(s, slots[1].till) > p.absence do table.remove(slots, 1) end
  while #slots > SLOTS do
    slots[2].n = slots[2].n + slots[1].n
    table.remove(slots, 1)
  end
  local text = {}
  s.prequeued = 0
  for i, slot in ipairs(slots) do
    s.prequeued = s.prequeued + slot.n
    text[i] = str(slot.till) .. ':' .. slot.n
  end
  -- Both at once: a call that only reads does not save the rest.
  redis.call('HSET', STATE, 'slots', table.concat(text, ' '), 'prequeued', str(s.prequeued), 'slots_absence', str(p.absence))
end

local function no_lots(s)
  s.prequeued, slots = 0, nil
  redis.call('HDEL', STATE, 'slots', 'prequeued', 'slots_absence')
end

-- announce takes in when a gateway says that the lottery opens. While gateways differ, as when their files are changed one
-- after the other, it opens at the latest of what was said in the last STANDS: an opening that is postponed is not made by
-- one that has not heard of it yet. What the plan of that gateway changes by itself is said no longer than till then.
local STANDS = 10000000
local function announce(s, p)
  s.opens_till = math.min(s.opens_till, s.wall + STANDS)
  if p.opens < s.opens and s.wall < s.opens_till then return end
  local till = s.wall + STANDS
  if p.opens_for > 0 then till = math.min(till, p.opens_for) end
  if p.opens < s.opens and s.prequeued > 0 then s.unheard = s.now + longest_advised(s, p) end
  if p.opens ~= s.opens or till - s.opens_till > 1000000 then -- a call that only reads does not save the rest
    redis.call('HSET', STATE, 'opens', str(p.opens), 'opens_till', str(till), 'unheard', str(s.unheard))
  end
  s.opens, s.opens_till = p.opens, till
end

-- LATE is what the last of those who were confirmed before an opening are given besides, to say so.
local LATE = 3000000
-- FLAP is how much later than advised a visitor of another file may be heard.
local FLAP = 5000000

-- one_lot gives the opening's commitment (32 bytes) and, once it was made, its seed (32). Of gateways whose secrets differ the
-- first one's commitment is published, and stands while a gateway that has it says so, and for STANDS after. Once the
-- opening was noted such a gateway gives the seed, by which the others draw too: nobody can choose among places any more.
-- said: the opening, ':', the commitment that a gateway has heard of, its own, and the seed of the former where it may be told.
local function one_lot(s, said)
  if s.opens == 0 then return '' end
  local h = redis.call('HMGET', STATE, 'lot_opens', 'lot', 'lot_till', 'lot_seed')
  local kept, till, seed = h[2] or '', math.min(num(h[3]), s.wall + STANDS), h[4] or ''
  if num(h[1]) ~= s.opens then kept, till, seed = '', 0, '' end
  local at = string.find(said, ':', 1, true)
  if at and tonumber(string.sub(said, 1, at - 1)) == s.opens then
    local known, own, told = string.sub(said, at + 1, at + 32), string.sub(said, at + 33, at + 64), string.sub(said, at + 65)
    local was, had, stood = kept, seed, till
    if kept == '' then kept, till = known, s.wall + STANDS end
    if seed == '' and s.wall >= till then kept = own end
    if kept == own then till = s.wall + STANDS end
    if seed == '' and kept == known and s.drawn > 0 then seed = told end
    if seed == '' and kept ~= own and s.drawn > 0 and s.prequeued > 0 then
      s.hold = math.max(s.hold, s.now + LATE) -- nobody comes in before those who gathered, whose draw may not be known here yet
    end
    if kept ~= was or seed ~= had or till - stood > 1000000 then
      redis.call('HSET', STATE, 'lot_opens', str(s.opens), 'lot', kept, 'lot_till', str(till), 'lot_seed', seed)
    end
  end
  return kept == '' and '' or str(s.opens) .. ':' .. kept .. seed
end

-- disband ends the gathering for a lottery that the room does not hold any more; true where there was one. Nobody is admitted
-- before all who gathered can have heard of it, as their orders are earlier than those of newcomers. While files of gateways
-- differ, visitors of some gather again and again, and each is heard within the longest interval: that prolongs nothing.
-- Who gathered before the last end and goes on to is answered by gateways alone for a quarter of absence (admission: gatherHold), and the
-- store does not count such visitors yet.
local function disband(s, p)
  local again = s.disbanded > 0 and s.now < s.disbanded + longest_advised(s, p) + FLAP
  if s.opens > 0 and s.now > s.disbanded + 1000000 then s.disbanded = s.now end
  local uncounted = not again and s.met > 0 and s.now < s.met + p.absence / 4 + longest_advised(s, p)
  if s.prequeued == 0 and not uncounted or s.drawn > 0 or p.reject then return false end
  local heard = s.now + longest_advised(s, p) -- by what they were advised by
  count_lots(s, p)
  if (s.prequeued > 0 or uncounted) and (p.live_method or not again) then
    s.unheard = math.max(s.unheard, heard)
    s.hold = math.max(s.hold, s.unheard + LATE)
  end
  if s.prequeued > 0 then s.met = s.now end
  no_lots(s)
  return true
end

-- draw keeps the lottery of a policy: it sets p.gathering before the opening, which it
-- notes, once, as the order time of the first call after it; true for that call. Those
-- who were confirmed before have seconds to say so, in which nobody is admitted: a low
-- number is not beaten by an early poll.
local function draw(s, p)
  if p.lottery == 0 or p.opens == 0 then return disband(s, p) end
  local before = s.drawn
  if s.drawn > 0 and p.opens > s.opens then
    s.drawn = 0
    no_lots(s)
  end
  if s.drawn == 0 then
    announce(s, p)
    if s.wall >= s.opens then
      s.drawn = s.time
      if s.prequeued > 0 then
        s.hold = math.max(s.hold, s.now + spread(s, p) + LATE, math.min(s.unheard, s.now + longest_advised(s, p)) + LATE)
      end
    end
  end
  p.gathering = s.drawn == 0
  return s.drawn > before
end

-- fair: start-time fair queuing, and the order by score.
--
-- A flow is one of those that share: a tenant among tenants, a group among its
-- tenant's groups, a room among those of one origin. Each has a tag, the virtual
-- time at which it may start next; the smallest goes first, and each grant moves
-- its tag on by cost / weight. The virtual time v is the tag of the last grant: a
-- flow that was idle comes back at max(v, its last tag), so credit cannot be
-- hoarded. For two flows that always had work,
--
--   |served_i/w_i - served_j/w_j| <= max_cost_i/w_i + max_cost_j/w_j
--
-- where max_cost is the largest grant of one turn. Source: P. Goyal, H. M. Vin,
-- H. Cheng, Start-Time Fair Queuing, SIGCOMM 1996. Tags are whole numbers below
-- 2^53; weights are in thousandths.

local fair = {
  -- How far a cost of 1 moves a tag at weight 1.000.
  UNIT = 65536,
  -- The factor of a level for its tenants' weights: high, normal, low.
  LEVELS = { 16, 4, 1 },
  -- The prefix of the names of a level's flows.
  PREFIX = { '1/', '2/', '3/' },
  -- Sets in which this call has found no active flow beyond the passed ones, and to which it has added none since.
  empty = {},
}

-- charge returns how far cost moves a tag at a weight in thousandths. It rounds
-- up, by at most one part in UNIT * 1000 / weight.
function fair.charge(cost, weight)
  return math.ceil(cost * fair.UNIT * 1000 / weight)
end

-- boost returns the bounded advantage of a group that is nearly done: 1 up to the half, 2 at the end.
function fair.boost(total, done)
  if total <= 0 or done * 2 <= total then return 1 end
  return math.min(2, 2 * done / total)
end

-- enter adds a flow to the active ones; idle has the last tags of idle flows.
function fair.enter(active, idle, v, flow)
  local tag = v
  local last = redis.call('ZSCORE', idle, flow)
  if last then
    redis.call('ZREM', idle, flow)
    tag = math.max(v, tonumber(last))
  end
  redis.call('ZADD', active, 'NX', int(tag), flow)
  fair.empty[active] = nil
end

-- leave removes a flow; its tag is remembered while it is ahead of v.
function fair.leave(active, idle, v, flow)
  local tag = redis.call('ZSCORE', active, flow)
  if not tag then return end
  redis.call('ZREM', active, flow)
  if tonumber(tag) > v then redis.call('ZADD', idle, int(tonumber(tag)), flow) end
end

-- first returns the flow with the smallest tag after the first ones that were passed (a number; nil: none), and its tag.
function fair.first(active, passed)
  if fair.empty[active] then return nil end
  local head = redis.call('ZRANGE', active, passed or 0, passed or 0, 'WITHSCORES')
  if not head[1] then
    fair.empty[active] = true
    return nil
  end
  return head[1], tonumber(head[2])
end

-- advance moves a flow on by a cost, or back by a negative one, and returns its new tag.
function fair.advance(active, flow, tag, cost, weight)
  tag = math.max(0, tag + fair.charge(cost, weight))
  redis.call('ZADD', active, 'XX', int(tag), flow)
  return tag
end

-- catch_up moves those of the listed active flows that are behind v on to v.
function fair.catch_up(active, v, flows)
  local args = {}
  for i, flow in ipairs(flows) do args[2 * i - 1], args[2 * i] = int(v), flow end
  if args[1] then redis.call('ZADD', active, 'XX', 'GT', unpack(args)) end
end

-- settle moves an active flow by a charge, and returns its new tag; nil where it is not active.
function fair.settle(active, flow, charge)
  local tag = tonumber(redis.call('ZADD', active, 'XX', 'INCR', int(charge), flow) or nil)
  if tag and tag < 0 then
    tag = 0
    redis.call('ZADD', active, 'XX', 0, flow)
  end
  return tag
end

-- forget drops the last tags that are not ahead of v.
function fair.forget(idle, v)
  redis.call('ZREMRANGEBYSCORE', idle, '-inf', int(v))
end

-- score returns the priority of the score policy, in milliseconds; the largest goes
-- first. alpha > 0 prefers groups that are nearly done, alpha < 0 shares evenly, 0 is by age.
function fair.score(now_ms, base, alpha, total, done)
  return -now_ms + base + math.floor(alpha * (-1 + total / math.max(1, total - done)))
end

-- audit: the audit log, a list whose entries are chained by hashes, newest first.
--
-- An entry is '=', its hash (64 hex digits), and its body in netstrings (length:bytes, '-' is nil): seq, hash of the entry before ('' of the
-- first), second, who, room, action, then field, before, after for each change. The hash is SHA-256 of the body. Entries of
-- earlier versions have a body without seq and hash, and no '='. They stay as they are, before the first of the chain.

local KEPT = 5000 -- entries; the oldest of them names the hash of the last one that was trimmed

-- round_constants returns the first 32 bits of the fractions of the cube roots of the first 64 primes.
local function round_constants()
  local k, n = {}, 2
  while #k < 64 do
    local prime = true
    for d = 2, math.floor(math.sqrt(n)) do
      if n % d == 0 then
        prime = false
        break
      end
    end
    if prime then
      local root = n ^ (1 / 3)
      k[#k + 1] = math.floor((root - math.floor(root)) * 4294967296)
    end
    n = n + 1
  end
  return k
end

-- sha256 returns the hash of a text in hex.
local function sha256(text)
  local band, bnot, bxor, ror, rshift, add = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift, bit.tobit
  local h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 }
  local size, k = #text, round_constants()
  text = text .. '\128' .. string.rep('\0', (55 - size) % 64) .. struct.pack('>I4I4', math.floor(size / 536870912), size * 8 % 4294967296)
  local w = {}
  for at = 1, #text, 64 do
    for i = 1, 16 do w[i] = struct.unpack('>I4', text, at + 4 * (i - 1)) end
    for i = 17, 64 do
      local a, b = w[i - 15], w[i - 2]
      w[i] = add(w[i - 16] + w[i - 7] + bxor(ror(a, 7), ror(a, 18), rshift(a, 3)) + bxor(ror(b, 17), ror(b, 19), rshift(b, 10)))
    end
    local a, b, c, d, e, f, g, z = unpack(h)
    for i = 1, 64 do
      local t = add(z + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + bxor(band(e, f), band(bnot(e), g)) + k[i] + w[i])
      local u = add(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + bxor(band(a, b), band(a, c), band(b, c)))
      z, g, f, e, d, c, b, a = g, f, e, add(d + t), c, b, a, add(t + u)
    end
    local now = { a, b, c, d, e, f, g, z }
    for i = 1, 8 do h[i] = add(h[i] + now[i]) end
  end
  for i = 1, 8 do h[i] = bit.tohex(h[i]) end
  return table.concat(h)
end

-- netstrings joins values; nil up to count is '-'.
local function netstrings(values, count)
  local a = {}
  for i = 1, count do
    local v = values[i]
    a[i] = v and (#v .. ':' .. v) or '-'
  end
  return table.concat(a)
end

-- audit_head returns seq and hash of the newest entry of the chain; 0 and '' without one.
local function audit_head(key)
  local newest = redis.call('LINDEX', key, 0)
  if not newest or newest:sub(1, 1) ~= '=' then return 0, '' end
  local from, to = newest:find(':', 66, true)
  local size = tonumber(newest:sub(66, from - 1))
  return tonumber(newest:sub(to + 1, to + size)), newest:sub(2, 65)
end

-- append_audit adds an entry to the log of a room. changes is a list of { field, before, after }.
local function append_audit(key, second, who, room, action, changes)
  local seq, hash = audit_head(key)
  local values = { string.format('%.0f', seq + 1), hash, second, who, room, action }
  for i, c in ipairs(changes) do
    values[3 * i + 4], values[3 * i + 5], values[3 * i + 6] = c[1], c[2], c[3]
  end
  local body = netstrings(values, 6 + 3 * #changes)
  redis.call('LPUSH', key, '=' .. sha256(body) .. body)
  redis.call('LTRIM', key, 0, KEPT - 1)
end

-- renew: extend holds to their TTL from now, each for itself.
--
-- KEYS  for each hold 3: the token counter of its partition, and of its name lock, order
-- ARGV  for each hold 2: id, TTL in ms
--
-- Returns for each hold 1 renewed, 0 lost, or a string: what went wrong with this one.
--
-- A lone hold costs 3 calls: HLEN, HEXISTS, PEXPIRE.

-- include model.lua

local function renew(k, id, ttl)
  local fields = redis.call('HLEN', KEYS[k])
  if fields == 0 then
    return 0
  end
  if fields == 2 then
    if redis.call('HEXISTS', KEYS[k], 'i:' .. id) == 0 then
      return 0
    end
    redis.call('PEXPIRE', KEYS[k], ttl)
    return 1
  end
  if counter ~= KEYS[k - 1] then
    counter, now = KEYS[k - 1], nil
  end
  open(k)
  settle()
  local found = 0
  if deadline_of(id) then
    redis.call('ZADD', order, now + ttl, 'h:' .. id)
    changed = true
    found = 1
  end
  close()
  return found
end

local results = {}
for i = 1, #ARGV / 2 do
  local ok, result = pcall(renew, 3 * i - 1, ARGV[2 * i - 1], ARGV[2 * i])
  if not ok and type(result) == 'table' then
    result = result.err
  end
  results[i] = result
end
return results

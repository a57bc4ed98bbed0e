-- renew: extend holds to their TTL from now, each for itself.
--
-- KEYS  for each hold 3: the token counter of its partition, and of its name lock, order
-- ARGV  for each hold 2: id, TTL in ms; and one more, of any text, if no deadline may become earlier
--
-- Returns for each hold 1 renewed, 0 lost, or a string: what went wrong with this one. It writes a hold
-- even if its deadline stays, so that a WAIT behind this counts the replicas that have it. Dead entries
-- of its name are deleted, also for an id that is no hold.
--
-- Calls: 2 for a lone hold (HEXISTS, PEXPIRE); 6 for a listed one (HEXISTS, HLEN, TIME, HMGET, HSET,
-- PEXPIREAT).

-- include token.lua
-- include record.lua
-- include name.lua

local never_earlier = #ARGV % 2 == 1

local function renew(k, id, ttl)
  if call('HEXISTS', KEYS[k], 'L:' .. id) == 1 then
    call('PEXPIRE', KEYS[k], never_earlier and math.max(ttl, call('PTTL', KEYS[k])) or ttl)
    return 1
  end
  local fields = call('HLEN', KEYS[k])
  if fields == 0 then return 0 end
  name.load_name(k, fields)
  name.delete_dead()
  local hold = form.hold_of(id)
  if hold then
    hold.deadline = math.max(name.now + ttl, never_earlier and hold.deadline or 0)
    form.put_hold(hold)
  end
  name.save_name()
  return hold and 1 or 0
end

local results = {}
for i = 1, math.floor(#ARGV / 2) do
  local ok, result = pcall(renew, 3 * i - 1, ARGV[2 * i - 1], ARGV[2 * i])
  if not ok then
    name.wakes = {}
    result = type(result) == 'table' and result.err or tostring(result)
  end
  results[i] = result
end
return results

-- prolong: renew a hold by one key at a time, for when its keys are on two nodes. First with its
-- lock, then, if that says so, with its order.
--
-- KEYS  1 lock or order of the name
-- ARGV  1 id, 2 TTL in ms
--
-- Returns 1 renewed, 0 lost, 2 continue with order.
--
-- Between the two calls only the lock lives longer, which keeps no request out: order decides.

-- include token.lua
-- include name.lua

local id, key, ttl = ARGV[1], KEYS[1], tonumber(ARGV[2])
name.read_clock()

if call('TYPE', key).ok == 'zset' then
  local deadline = call('ZSCORE', key, 'h:' .. id)
  if not deadline or tonumber(deadline) < name.now then
    return 0
  end
  call('ZADD', key, name.now + ttl, 'h:' .. id)
  call('PEXPIRE', key, ttl, 'GT')
  return 1
end

if call('HEXISTS', key, 'E:' .. id) == 1 then
  call('PEXPIRE', key, ttl, 'GT')
  return 2
end
local fields = call('HLEN', key)
if fields == 0 or call('HEXISTS', key, 'counts') == 1 then
  return 0
end
name.load_name(1, fields)
local hold = name.hold_of(id)
if not hold or hold.deadline < name.now then
  return 0
end
hold.deadline = name.now + ttl
name.put_hold(hold)
name.save_lists()
return 1

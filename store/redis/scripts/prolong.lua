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
-- include record.lua
-- include name.lua

local id, key, ttl = ARGV[1], KEYS[1], tonumber(ARGV[2])
name.time, name.now, name.digits = read_clock()

if call('TYPE', key).ok == 'zset' then
  local deadline = call('ZSCORE', key, 'h:' .. id)
  if not deadline or tonumber(deadline) < name.now then return 0 end
  call('ZADD', key, name.now + ttl, 'h:' .. id)
  call('PEXPIRE', key, ttl, 'GT')
  return 1
elseif call('HEXISTS', key, 'E:' .. id) == 1 then
  call('PEXPIRE', key, ttl, 'GT')
  return 2
end
local hold
if call('HEXISTS', key, 'counts') == 0 then
  name.load_name(1, call('HLEN', key))
  hold = form.hold_of(id)
end
if not hold or hold.deadline < name.now then return 0 end
hold.deadline = name.now + ttl
form.put_hold(hold)
form.save()
return 1

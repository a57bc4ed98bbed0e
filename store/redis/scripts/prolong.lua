-- prolong: renew a hold by one key at a time, for when its keys are on two nodes. First with its
-- lock, then, if that says so, with its order.
--
-- KEYS  1 lock or order of the name
-- ARGV  1 id, 2 TTL in ms
--
-- Returns 1 renewed, 0 lost, 2 continue with order.
--
-- Between the two calls only the lock lives longer, which keeps nobody out: what counts is order.

local kind = redis.call('TYPE', KEYS[1]).ok

if kind == 'hash' then
  if redis.call('HEXISTS', KEYS[1], 'i:' .. ARGV[1]) == 0 then
    return 0
  end
  if redis.call('HLEN', KEYS[1]) == 2 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
  return 2
end

local deadline = redis.call('ZSCORE', KEYS[1], 'h:' .. ARGV[1])
if not deadline then
  return 0
end
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
if tonumber(deadline) < now then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], 'h:' .. ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
return 1

-- release: give up a hold or a place, and promote.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 due, 4 queue, 5 wait of the name
-- ARGV  1 id, 2 bury for so many ms (0: no)
--
-- Returns 1 if the id was there, 0 if not.
--
-- A lone hold costs 3 calls: HLEN, HDEL, DEL.

local id, bury = ARGV[1], tonumber(ARGV[2])

if bury == 0 then
  local fields = redis.call('HLEN', KEYS[2])
  if fields == 0 then
    return 0
  end
  if fields == 2 then
    if redis.call('HDEL', KEYS[2], 'i:' .. id) == 0 then
      return 0
    end
    redis.call('DEL', KEYS[2])
    return 1
  end
end

-- include model.lua

open(2)
settle()
local found = 0
if redis.call('ZSCORE', due, id) then
  drop(id)
  promote()
  found = 1
elseif redis.call('ZSCORE', queue, id) then
  leave(id)
  promote()
  found = 1
end
if bury > 0 then
  redis.call('HSET', lock, 'i:' .. id, 'b')
  redis.call('ZADD', wait, now + bury, id)
  changed = true
end
close()
return found

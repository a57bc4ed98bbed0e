-- release: give up a hold or a place, and promote.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 order of the name
-- ARGV  1 id, 2 owner, 3 bury for so many ms (0: no)
--
-- Returns 1 if the id was there, 0 if not.
--
-- A lone hold costs 2 calls: HLEN, HDEL. The only hold, for which one request waits, costs 10: HLEN,
-- ZRANGE, HMGET, TIME, SET, HSET, HDEL, DEL, PEXPIRE, SPUBLISH. If more wait, and the first asks for an
-- exclusive hold, it is 14, and 15 if the hold would have lasted a minute longer than the next one will.
-- One of two readers costs 9: HLEN, ZRANGE, HMGET, TIME, ZCARD, HGET, HDEL, DEL, PEXPIREAT; one of more
-- 11: HLEN, 2 ZRANGE, HMGET, TIME, ZCARD, ZREM, HDEL, HSET, 2 PEXPIREAT.

local call = redis.call

local fields
if ARGV[3] == '0' then
  fields = call('HLEN', KEYS[2])
  if fields == 0 then
    return 0
  end
  if fields == 2 then
    -- Both fields of a lone hold, and with them the key.
    local gone = call('HDEL', KEYS[2], 'i:' .. ARGV[1], 'o:' .. ARGV[2])
    if gone == 2 then
      return 1
    end
    if gone == 1 then
      -- Another hold of this owner: its count was taken, and comes back.
      call('HSET', KEYS[2], 'o:' .. ARGV[2], '1')
    end
    return 0
  end
end

-- include token.lua
-- include handover.lua
-- include part.lua

if ARGV[3] == '0' then
  local front = call('ZRANGE', KEYS[3], 0, 3, 'WITHSCORES')
  if hand_over(fields, front, ARGV[1], ARGV[2]) or part(front, ARGV[1], ARGV[2]) then
    return 1
  end
end

-- include model.lua

local id, bury = ARGV[1], tonumber(ARGV[3])

open(2)
settle()
local found = 0
if deadline_of(id) then
  drop(id)
  promote()
  found = 1
elseif waits(id) then
  leave(id)
  promote()
  found = 1
end
if bury > 0 then
  redis.call('HSET', lock, 'i:' .. id, 'b')
  redis.call('ZADD', order, later + now + bury, 'd:' .. id)
  changed = true
end
close()
return found

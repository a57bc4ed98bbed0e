-- confirm: write again that an id is a hold, so that a WAIT behind it speaks of that.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 order of the name
-- ARGV  1 id, 2 ms
--
-- The deadline becomes that many ms from now if that is later, never earlier: the holder may have
-- renewed already. Returns 1 if the id is a hold, 0 if not.

-- include model.lua

open(2)
settle()
local deadline = deadline_of(ARGV[1])
if deadline then
  redis.call('ZADD', order, math.max(deadline, now + ARGV[2]), 'h:' .. ARGV[1])
  changed = true
end
close()
return deadline and 1 or 0

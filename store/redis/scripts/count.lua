-- count: how many holders and waiters a name has.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 due, 4 queue, 5 wait of the name
--
-- Returns the number.

-- include model.lua

open(2)
settle()
local number = holds + redis.call('ZCARD', queue)
close()
return number

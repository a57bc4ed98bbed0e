-- count: how many holders and waiters a name has.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 order of the name
--
-- Returns the number.

-- include model.lua

open(2)
settle()
local number = holds + redis.call('ZCOUNT', order, '-inf', '(0')
close()
return number

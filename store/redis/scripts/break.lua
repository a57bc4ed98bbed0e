-- break: remove all holds of a name by force, and promote.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 due, 4 queue, 5 wait of the name
--
-- Returns how many holds were removed.

-- include model.lua

open(2)
settle()
local broken = 0
for _, id in ipairs(redis.call('ZRANGE', due, 0, -1)) do
  drop(id)
  broken = broken + 1
end
promote()
close()
return broken

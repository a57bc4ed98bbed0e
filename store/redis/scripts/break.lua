-- break: remove all holds of a name by force, and promote.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 order of the name
--
-- Returns how many holds were removed.

-- include model.lua

open(2)
settle()
local broken = 0
for _, member in ipairs(redis.call('ZRANGE', order, 0, later - 1, 'BYSCORE')) do
  drop(string.sub(member, 3))
  broken = broken + 1
end
promote()
close()
return broken

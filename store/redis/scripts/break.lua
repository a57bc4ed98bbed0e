-- break: remove all holds of a name by force, and promote.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
--
-- Returns how many holds were removed.

-- include token.lua
-- include name.lua

name.load_name(2, call('HLEN', KEYS[2]))
name.delete_dead()
local broken = {}
for i, line in ipairs((name.lists())) do
  broken[i] = name.read_line(line)
end
for _, hold in ipairs(broken) do
  name.delete_hold(hold)
end
name.promote()
name.save_name()
return #broken

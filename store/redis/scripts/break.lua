-- break: remove all holds of a name by force, and promote.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
--
-- Returns how many holds were removed.

-- include token.lua
-- include record.lua
-- include name.lua

name.load_name(2, call('HLEN', KEYS[2]))
name.delete_dead()
local broken = form.entries()
for _, hold in ipairs(broken) do form.delete_hold(hold) end
name.promote()
name.save_name()
return #broken

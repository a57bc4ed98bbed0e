-- count: how many holders and waiters a name has. It writes nothing.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
--
-- Returns the number, or -1 if there are dead entries, which settle.lua deletes.

-- include token.lua
-- include name.lua

name.looking = true
name.load_name(2, call('HLEN', KEYS[2]))
local number, waiters = name.numbers()
return name.has_dead() and -1 or number + waiters

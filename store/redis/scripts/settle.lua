-- settle: delete the dead entries of a name, and promote. For looks, which write nothing themselves.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed

-- include token.lua
-- include name.lua

name.load_name(2, call('HLEN', KEYS[2]))
name.delete_dead()
name.save_name()
return 1

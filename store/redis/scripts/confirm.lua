-- confirm: write a hold once more, so that a WAIT behind this counts the replicas that have it.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
-- ARGV  1 id, 2 ms
--
-- The deadline becomes that many ms from now if that is later, never earlier: the holder may have
-- renewed already. Returns 1 if the id is a hold, 0 if not.

-- include token.lua
-- include name.lua

name.load_name(2, call('HLEN', KEYS[2]))
name.delete_dead()
local hold = name.hold_of(ARGV[1])
if hold then
  hold.deadline = math.max(hold.deadline, name.now + ARGV[2])
  name.put_hold(hold)
end
name.save_name()
return hold and 1 or 0

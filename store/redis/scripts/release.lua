-- release: give up a hold or a place, or by force all holds of a name, and promote.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
-- ARGV  1 id; 2 bury for so many ms (0: no). Absent: all holds
--
-- Returns 1 if the id was there, 0 if not; or how many holds were removed.
--
-- Calls: 2 for a lone hold (HLEN, HDEL), which needs no script; 7 for a hold that is handed over (HLEN,
-- TIME, HMGET, SET, HSET, PEXPIREAT, SPUBLISH), and 8 if the next hold is a lone one (the same and
-- HDEL); 5 or 6 for a reader beside others (the same without SET and SPUBLISH).

-- include token.lua

local id, refuse = ARGV[1], tonumber(ARGV[2])
local fields = call('HLEN', KEYS[2])
if refuse == 0 and fields < 2 then return fields == 1 and call('HDEL', KEYS[2], 'L:' .. id) or 0 end

-- include record.lua
-- include leave.lua

local text = read_lists(KEYS[2], fields)
if refuse == 0 and leave(text, id) then return 1 end

-- include name.lua

name.load_name(2, fields, text)
name.delete_dead()
local holds = id and {form.hold_of(id) or nil} or form.entries()
local waiter = id and #holds == 0 and form.waiter_of(id)
for _, hold in ipairs(holds) do form.delete_hold(hold) end
if waiter then form.delete_waiter(waiter) end
if #holds > 0 or waiter then name.promote() end
if refuse and refuse > 0 then form.bury(id, name.now + refuse) end
name.save_name()
return waiter and 1 or #holds

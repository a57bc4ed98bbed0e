-- inspect: the holders and the queue of one name. It writes nothing.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
-- ARGV  1 how many characters of an id or owner may be shown
--
-- Returns {last token, holders, waiters, dead}: of each holder, the oldest grant first, and of each
-- waiter, the head first, {id, owner, mode, token (0 for a waiter), ms to its deadline, label, ms since
-- the grant (0 for a waiter)}; dead is 1 if there are dead entries, which renew.lua deletes.

-- include token.lua
-- include record.lua
-- include name.lua

local shown = tonumber(ARGV[1])

local function shorten(e)
  return {cut(e.id, 1, shown), cut(e.owner, 1, shown), e.mode, tonumber(e.token), e.deadline - name.now, e.rest, e.token == 0 and 0 or math.max(name.now - math.floor(e.token / 1000), 0)}
end

local last = last_token(0)
name.looking = true
name.load_name(2, call('HLEN', KEYS[2]))
local dead = (form.has_dead or form.forget_dead)()
local holds, waits = form.entries()
for _, e in ipairs(waits) do
  _, _, e.rest = read_place(e.rest)
  e.token = 0
end
return {last, map(holds, shorten), map(waits, shorten), dead and 1 or 0}

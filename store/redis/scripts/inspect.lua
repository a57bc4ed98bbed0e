-- inspect: the holders and the queue of one name. It writes nothing.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
-- ARGV  1 how many characters of an id or owner may be shown
--
-- Returns {last token, holders, waiters, dead}: of each holder, the oldest grant first, and of each
-- waiter, the head first, {id, owner, mode, token (0 for a waiter), ms to its deadline, label}; dead
-- is 1 if there are dead entries, which settle.lua deletes.

-- include token.lua
-- include name.lua

local shown = tonumber(ARGV[1])

local function entries(lines, waiting)
  local all = {}
  for _, line in ipairs(lines) do
    local e = name.read_line(line)
    local label = e.rest
    if waiting then
      _, _, label = name.read_place(e)
    end
    if e.deadline >= name.now then
      all[#all + 1] = {string.sub(e.id, 1, shown), string.sub(e.owner, 1, shown), e.mode,
        waiting and 0 or tonumber(e.token), e.deadline - name.now, label}
    end
  end
  return all
end

local last = last_token(0)
name.looking = true
name.load_name(2, call('HLEN', KEYS[2]))
local holds, waits = name.lists()
return {last, entries(holds), entries(waits, true), name.has_dead() and 1 or 0}

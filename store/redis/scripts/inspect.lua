-- inspect: the holders and the queue of one name.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 order of the name
-- ARGV  1 how many characters of an id or owner may be shown
--
-- Returns {last token, holders, waiters}: of each holder, the oldest grant first, and of each waiter,
-- the head first, {id, owner, mode, token (0 for a waiter), ms to its deadline, label}.
--
-- What has died is removed on the way, as with every other script.

-- include model.lua

local shown = tonumber(ARGV[1])

local function entry(id, e, token, deadline)
  return {string.sub(id, 1, shown), string.sub(e.owner, 1, shown), e.mode, token, deadline - now, e.label}
end

open(2)
settle()

local held, holders, waiters = {}, {}, {}
local members = redis.call('ZRANGE', order, 0, -1, 'WITHSCORES')
for i = 1, #members, 2 do
  local band, id = string.match(members[i], '^(.):(.*)$')
  if band == 'h' then
    local h = hold(id)
    held[#held + 1] = {number = h.number, entry = entry(id, h, tonumber(h.token), members[i + 1])}
  elseif band == 'q' then
    waiters[#waiters + 1] = entry(id, waiter(id), 0, redis.call('ZSCORE', order, 'd:' .. id) - later)
  end
end
table.sort(held, function(a, b) return a.number < b.number end)
for i, h in ipairs(held) do
  holders[i] = h.entry
end

close()
return {last, holders, waiters}

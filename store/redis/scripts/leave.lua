-- leave: a hold ends, without the functions of name.lua, which take as long to make as this. For
-- release.lua.

-- leave gives the only hold to the first waiter, or ends one of several behind which nothing waits. It
-- returns false if the state is another one, of which it has changed nothing but the token counter.
local function leave(text, id)
  local holds, waits = text[1], text[2]
  local at = holds and waits and not text[3] and not text[4] and find_text(holds, id .. ' ', 1, true)
  local ends = at and find_text(holds, '\n', at, true)
  if not ends or at > 1 and byte(holds, at - 1) ~= 10 then return false end
  local time, now, digits = read_clock()
  local others = cut(holds, 1, at - 1) .. cut(holds, ends + 1)
  local number, latest = scan(others, 1, digits, '')
  if not number or cut(holds, at + 33, at + 45) < digits or (number == 0) == (waits == '') then
    return false
  end
  if number > 0 then
    save_lists(KEYS[2], text, others, waits, '', latest)
    return true
  end
  local tokens, mode, owner, rest, from = read_record(waits, 48)
  local ms, client, label = read_place(rest)
  local first = cut(waits, 1, 32)
  -- Readers that follow a reader, and other waiters of its owner, may be granted with it.
  if find_text(waits, ' ' .. owner .. ' ', from, true) or mode == 's' and from <= #waits and find_text(waits, '^%d+ s ', from + 47) then
    return false
  end
  local deadline = string.format('%013.0f', now + ms)
  number, latest = scan(waits, from, digits, deadline)
  if not number or cut(waits, 34, 46) < digits then return false end
  local token, short = take(time, tonumber(tokens))
  if not token then return false end -- the hold can be given up all the same
  holds = write_line(first, deadline, token, mode, owner, label)
  save_lists(KEYS[2], text, holds, cut(waits, from), '', latest)
  -- Without the right to publish a release is still a release; the waiter asks by itself.
  redis.pcall('SPUBLISH', cut(counter, 1, -6) .. 'wake:' .. client, first .. ' ' .. token .. ' ' .. short)
  return true
end

-- handover: the only hold goes to the first waiter, without the functions of name.lua, which take as
-- long to make as this. For release.lua.

-- hand_over returns true if it has done so. Otherwise the state is another one, of which it has
-- changed nothing but the token counter. Text is what the listed form has.
local function hand_over(text, id)
  local holds, waits = text[1], text[2]
  if not holds or not waits or text[3] or text[4] or cut(holds, 1, 33) ~= id .. ' '
    or find_text(holds, '\n', 1, true) ~= #holds then
    return false
  end
  local next_id, ends, tokens, mode, owner, ms, client, label, rest =
    string.match(waits, '^(%x+) (%d+) (%d+) ([xs]) (%S+) (%d+) (%x+) ([^\n]*)\n()')
  -- Readers that follow a reader, and other waiters of its owner, may be granted with it.
  if not next_id or #ms > 12 or find_text(waits, ' ' .. owner .. ' ', rest, true)
    or mode == 's' and find_text(waits, '^%x+ %d+ %d+ s ', rest) then
    return false
  end
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local digits, deadline = string.format('%013.0f', now), string.format('%013.0f', now + ms)
  local latest, from = deadline, rest
  while from <= #waits do
    local line_end, dies = find_text(waits, '\n', from, true), cut(waits, from + 33, from + 45)
    if not line_end or dies < digits then
      return false
    end
    from, latest = line_end + 1, dies > latest and dies or latest
  end
  if ends < digits or cut(holds, 34, 46) < digits or not tonumber(latest) then
    return false
  end
  local token, short = take(time, tonumber(tokens))
  if not token then
    return false -- the hold can be given up all the same
  end
  local record = token .. ' ' .. mode .. ' ' .. owner .. ' ' .. label
  if rest > #waits then
    call('HSET', KEYS[2], 'L:' .. next_id, record)
    call('HDEL', KEYS[2], 'holds', 'waits')
  else
    call('HSET', KEYS[2], 'holds', next_id .. ' ' .. deadline .. ' ' .. record .. '\n', 'waits', cut(waits, rest))
  end
  call('PEXPIREAT', KEYS[2], latest)
  -- Without the right to publish a release is still a release; the waiter asks by itself.
  redis.pcall('SPUBLISH', cut(counter, 1, -6) .. 'wake:' .. client, next_id .. ' ' .. token .. ' ' .. short)
  return true
end

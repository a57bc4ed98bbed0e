-- queue: a place behind one hold of another owner, without the functions of name.lua, which take as
-- long to make as this. For acquire.lua.

-- queue returns the reply, or nil if the state is another one, of which it has changed nothing. Text
-- is what the listed form has, with lone, the field of a lone hold if that is what there is.
local function queue(text, id, tokens, place, mode, owner, label)
  local holds, waits = text[1], text[2]
  if place == '' or not holds or not waits or text[3] or text[4] or find_text(waits, id, 1, true) then
    return nil
  end
  local deadline, held, other, by = string.match(holds, '^%x+ (%d+) %d+ ([xs]) (%S+) ([^\n]*)\n$')
  if not deadline or other == owner or held == 's' and mode == 's' then
    return nil
  end
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local digits = string.format('%013.0f', now)
  local until_then = string.format('%013.0f', now + string.match(place, '^%d+'))
  local latest, position, from = until_then, 1, 1
  while from <= #waits do
    local line_end, ends = find_text(waits, '\n', from, true), cut(waits, from + 33, from + 45)
    if not line_end or ends < digits then
      return nil
    end
    position, from, latest = position + 1, line_end + 1, ends > latest and ends or latest
  end
  if deadline < digits or position >= limit or not tonumber(latest) then
    return nil
  end
  local last = last_token(tonumber(tokens))
  waits = waits .. id .. ' ' .. until_then .. ' ' .. tokens .. ' ' .. mode .. ' ' .. owner .. ' ' .. place
    .. ' ' .. label .. '\n'
  if text.lone then
    call('HSET', KEYS[2], 'holds', holds, 'waits', waits)
    call('HDEL', KEYS[2], text.lone)
  else
    call('HSET', KEYS[2], 'waits', waits)
  end
  call('PEXPIREAT', KEYS[2], deadline > latest and deadline or latest)
  return {0, last, position, deadline - now + 1 + 2 * math.min(position - 1, 20), by}
end

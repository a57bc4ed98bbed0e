-- enter: a request comes to holds of other owners, without the functions of name.lua, which take as
-- long to make as this. For acquire.lua.

-- enter returns the reply of a reader's hold beside others, or of a place. It returns nil if the state
-- is another one, of which it has changed nothing but the token counter.
local function enter(text, id, tokens, place, mode, owner, label)
  local holds, waits = text[1], text[2]
  if not holds or not waits or text[3] or text[4] or find_text(holds, owner, 1, true) or find_text(waits, id, 1, true) then
    return nil
  end
  local time, now, digits = read_clock()
  local number, latest = scan(holds, 1, digits, '')
  local position, last = scan(waits, 1, digits, latest or '')
  if not number or number == 0 or not position or number + position >= limit then return nil end
  local granted, held, _, by = read_record(holds, 48)
  if mode == 's' and waits == '' and held == 's' then
    if find_text(holds, ' x ', 1, true) then return nil end -- one of them may be exclusive
    local token, short = take(time, tonumber(tokens))
    if not token then return nil end
    local deadline = string.format('%013.0f', now + ARGV[3])
    holds = holds .. write_line(id, deadline, token, mode, owner, label)
    save_lists(KEYS[2], text, holds, waits, '', deadline > latest and deadline or latest)
    return {1, tonumber(token), short, tonumber(ARGV[3]), 1}
  elseif place == '' then
    return nil
  end
  local issued = last_token(tonumber(tokens))
  local deadline = string.format('%013.0f', now + string.match(place, '^%d+'))
  waits = waits .. write_line(id, deadline, tokens, mode, owner, place .. ' ' .. label)
  save_lists(KEYS[2], text, holds, waits, '', deadline > last and deadline or last)
  return {0, issued, position + 1, latest - now + 1 + 2 * math.min(position, 20), math.max(now - math.floor(granted / 1000), 0) .. ' ' .. by}
end

-- readers: a reader comes to others, or goes, and no request waits, without the functions of name.lua,
-- which take as long to make as this. For acquire.lua and release.lua.

-- other_readers looks through the lines of readers that are alive. It returns the line of id, or an
-- empty text, the other lines, their number, the last of their deadlines, and the present; or nil
-- if one of them is dead, no reader, or the owner's.
local function other_readers(text, id, owner)
  local holds = text[1]
  if not holds or text[2] ~= '' or text[3] or text[4] then
    return nil
  end
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local digits, own, latest, number, from = string.format('%013.0f', now), '', '', 0, 1
  local others = holds
  while from <= #holds do
    local line_end, dies = find_text(holds, '\n', from, true), cut(holds, from + 33, from + 45)
    local holder = string.match(holds, '^ %d+ s (%S+) ', from + 46)
    if not line_end or not holder or dies < digits then
      return nil
    elseif cut(holds, from, from + 32) == id .. ' ' then
      own, others = cut(holds, from, line_end), cut(holds, 1, from - 1) .. cut(holds, line_end + 1)
    elseif holder == owner then
      return nil
    else
      number, latest = number + 1, dies > latest and dies or latest
    end
    from = line_end + 1
  end
  if number > 0 and tonumber(latest) then
    return own, others, number, latest, now, time
  end
end

-- join_readers makes a request a hold and returns the reply, or nil, as does queue.
local function join_readers(text, id, tokens, owner, label)
  local own, others, number, latest, now, time = other_readers(text, id, owner)
  if own ~= '' or number >= limit then
    return nil
  end
  local token, short = take(time, tonumber(tokens))
  if not token then
    return nil
  end
  local deadline = string.format('%013.0f', now + ARGV[3])
  local record = token .. ' s ' .. owner .. ' ' .. label
  call('HSET', KEYS[2], 'holds', others .. id .. ' ' .. deadline .. ' ' .. record .. '\n', 'waits', '')
  if text.lone then
    call('HDEL', KEYS[2], text.lone)
  end
  call('PEXPIREAT', KEYS[2], deadline > latest and deadline or latest)
  return {1, tonumber(token), short, tonumber(ARGV[3]), 1}
end

-- leave_readers ends a hold, and returns false if it has changed nothing.
local function leave_readers(text, id)
  local own, others, number, latest = other_readers(text, id)
  if not own or own == '' then
    return false
  end
  if number == 1 then
    call('HSET', KEYS[2], 'L:' .. cut(others, 1, 32), cut(others, 48, -2))
    call('HDEL', KEYS[2], 'holds', 'waits')
  else
    call('HSET', KEYS[2], 'holds', others)
  end
  call('PEXPIREAT', KEYS[2], latest)
  return true
end

-- handover: what the model does when the only hold is given up and somebody waits, in a quarter of
-- the calls. For the script that includes it, after token.lua. The forms and bands are those of
-- model.lua.

-- hand_over returns true if it has done so. If not, it has changed nothing: the name is in another
-- state, or somebody has died or tampered with it. Front is the first four of the order, with their
-- scores; fields is how many the lock has.
local function hand_over(fields, front, id, owner)
  local lock, order = KEYS[2], KEYS[3]
  local later = 1125899906842624

  local head = string.match(front[1] or '', '^q:(%x+)$')
  if not head then
    return false
  end
  local alone = #front == 6 and front[3] == 'h:' .. id and front[5] == 'd:' .. head
  local lease, patience = front[4], front[6]
  if not alone then
    local scores = call('ZMSCORE', order, 'h:' .. id, 'd:' .. head)
    lease, patience = scores[1], scores[2]
  end
  local has = call('HMGET', lock, 'holds', 'serial', 'o:' .. owner, 'i:' .. head)
  if has[1] ~= '1' or not has[2] or has[3] ~= '1' then
    return false
  end
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if not lease or tonumber(lease) < now or not patience or tonumber(patience) < later + now then
    return false
  end
  local mode, next_owner, tokens, ms, channel, label =
    string.match(has[4] or '', '^([xs]) (%S+) (%d+) (%d+) (%S+) (.*)$')
  if not mode or alone and (fields ~= 8 or next_owner == owner) then
    return false
  end
  if not alone and (mode ~= 'x' or call('HGET', lock, 'w:' .. next_owner) ~= head) then
    return false -- others may have to be granted with it
  end

  local taken, token, short = pcall(take, time, tokens)
  if not taken then
    return false -- there are no more tokens, but the hold can be given up
  end
  local record = mode .. ' ' .. next_owner .. ' ' .. token .. ' '
  if alone then
    -- The lock is not deleted: while its slot moves to another node, it could not be made anew.
    call('HSET', lock, 'o:' .. next_owner, '1', 'i:' .. head, record .. '1 ' .. label)
    call('HDEL', lock, 'holds', 'exclusive', 'serial', 'i:' .. id, 'o:' .. owner, 't:' .. owner, 'w:' .. next_owner)
    call('DEL', order)
    call('PEXPIRE', lock, ms)
  else
    local deadline = string.format('%.0f', now + ms)
    call('ZREM', order, 'h:' .. id, 'q:' .. head, 'd:' .. head)
    call('ZADD', order, deadline, 'h:' .. head)
    call('HDEL', lock, 'i:' .. id, 'o:' .. owner, 't:' .. owner, 'w:' .. next_owner)
    call('HSET', lock, 'o:' .. next_owner, '1', 'i:' .. head, record .. has[2] .. ' ' .. label,
      't:' .. next_owner, 'x' .. token .. '=1', 'exclusive', '1')
    -- To look for the last entry is a call. Without it the keys may outlive that, by a minute at most.
    local over, when = deadline, 'GT'
    if lease - deadline > 60000 then
      local last = call('ZRANGE', order, -1, -1, 'WITHSCORES')[2]
      over, when = string.format('%.0f', math.max(deadline, last - later)), 'LT'
    end
    call('PEXPIREAT', lock, over, when)
    call('PEXPIREAT', order, over, when)
  end
  redis.pcall('SPUBLISH', channel, head .. ' ' .. token .. ' ' .. short)
  return true
end

-- part: what the model does when one of several readers goes, in a third of the calls. For the script
-- that includes it. The forms and bands are those of model.lua.

-- part ends the hold of a reader beside others, and returns true if it has done so. If not, it has
-- changed nothing: the name is in another state, or somebody has died or tampered with it. Front is
-- the first two of the order at least, with their scores.
local function part(front, id, owner)
  if string.sub(front[1] or '', 1, 2) ~= 'h:' then
    return false
  end
  local lock, order = KEYS[2], KEYS[3]
  local has = call('HMGET', lock, 'holds', 'o:' .. owner, 'i:' .. id)
  local holds, holder = tonumber(has[1]), string.match(has[3] or '', '^s (%S+) %d+ %d+ ')
  -- It is its owner's only one, and so nobody writes.
  if not holds or holds < 2 or has[2] ~= '1' or holder ~= owner then
    return false
  end
  -- Nothing but holds, and the one that ends first is alive.
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if call('ZCARD', order) ~= holds or tonumber(front[2]) < now then
    return false
  end

  if holds == 2 then
    -- The other one is a lone hold then.
    local k = front[1] == 'h:' .. id and 3 or 1
    local other = string.match(front[k], '^h:(%x+)$')
    local rest = other and string.match(call('HGET', lock, 'i:' .. other) or '', '^s (%S+) %d+ %d+ ')
    if not rest or front[4 - k] ~= 'h:' .. id then
      return false
    end
    call('HDEL', lock, 'holds', 'exclusive', 'serial', 'i:' .. id, 'o:' .. owner, 't:' .. owner, 't:' .. rest)
    call('DEL', order)
    call('PEXPIREAT', lock, front[k + 1])
    return true
  end
  if call('ZREM', order, 'h:' .. id) == 0 then
    return false
  end
  call('HDEL', lock, 'i:' .. id, 'o:' .. owner, 't:' .. owner)
  call('HSET', lock, 'holds', holds - 1)
  local last = call('ZRANGE', order, -1, -1, 'WITHSCORES')
  call('PEXPIREAT', lock, last[2])
  call('PEXPIREAT', order, last[2])
  return true
end

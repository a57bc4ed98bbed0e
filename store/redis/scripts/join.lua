-- join: what the model does when a reader comes to others who hold the name, in a third of the calls.
-- For the script that includes it, after token.lua. The forms and bands are those of model.lua.

-- join makes a reader's request a hold beside others, and returns the reply. If it returns nil, it has
-- changed nothing: the name is in another state, or somebody has tampered with it. Fields is how many
-- the lock has.
local function join(fields, id, owner, ttl, label)
  local lock, order = KEYS[2], KEYS[3]
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local token, short

  if fields == 2 then
    -- A lone hold, which becomes the full form.
    local all = call('HGETALL', lock)
    local k = string.sub(all[1], 1, 2) == 'i:' and 1 or 3
    local holder, hold = string.match(all[4 - k], '^o:(%S+)$'), string.match(all[k], '^i:(%x+)$')
    local held, serial = string.match(all[k + 1], '^s %S+ (%d+) (%d+) ')
    if not hold or hold == id or not holder or holder == owner or not held then
      return nil
    end
    local deadline = call('PEXPIRETIME', lock)
    if deadline < now or call('ZCARD', order) > 0 then
      return nil
    end
    token, short = take(time, ARGV[5])
    serial = serial + 1
    call('HSET', lock, 'holds', '2', 'exclusive', '0', 'serial', serial, 't:' .. holder, 's' .. held .. '=1',
      'o:' .. owner, '1', 't:' .. owner, 's' .. token .. '=1',
      'i:' .. id, 's ' .. owner .. ' ' .. token .. ' ' .. serial .. ' ' .. label)
    call('ZADD', order, deadline, 'h:' .. hold, now + ttl, 'h:' .. id)
    call('PEXPIREAT', lock, math.max(deadline, now + ttl))
    call('PEXPIREAT', order, math.max(deadline, now + ttl))
  else
    local has = call('HMGET', lock, 'holds', 'exclusive', 'serial', 'i:' .. id, 'o:' .. owner, 'w:' .. owner)
    local holds, serial = tonumber(has[1]), tonumber(has[3])
    -- Who has died does no harm here. The next one who goes finds him, or the model at each 64th grant.
    if not holds or holds < 1 or has[2] ~= '0' or not serial or serial % 64 == 0 or has[4] or has[5] or has[6] or
      call('ZCARD', order) ~= holds then
      return nil
    end
    token, short = take(time, ARGV[5])
    serial = serial + 1
    call('HSET', lock, 'holds', holds + 1, 'serial', serial, 'o:' .. owner, '1', 't:' .. owner, 's' .. token .. '=1',
      'i:' .. id, 's ' .. owner .. ' ' .. token .. ' ' .. serial .. ' ' .. label)
    call('ZADD', order, now + ttl, 'h:' .. id)
    call('PEXPIREAT', lock, now + ttl, 'GT')
    call('PEXPIREAT', order, now + ttl, 'GT')
  end
  return {1, tonumber(token), short, ttl, 1}
end

-- queue: what the model does with a request that has to wait for the only hold there is, one of
-- somebody else, in a third of the calls. For the script that includes it. The forms and bands are
-- those of model.lua.

-- line_up gives a request a place and returns the reply. If it returns nil, it has changed nothing:
-- the name is in another state, or somebody has died or tampered with it. Fields is how many the
-- lock has.
local function line_up(fields, id, owner, mode, waiting, channel)
  local lock, order = KEYS[2], KEYS[3]
  local first_place, later, most = -4503599627370496, 1125899906842624, 9007199254740992

  local last, time = call('GET', KEYS[1]) or '0', call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if not string.match(last, '^%d+$') or tonumber(last) >= most - ARGV[5] then
    return nil
  end
  local over = now + waiting
  local place = table.concat({mode, owner, ARGV[5], waiting, channel, ARGV[6]}, ' ')

  local deadline, position
  if fields == 2 then
    -- A lone hold, which becomes the full form.
    local all = call('HGETALL', lock)
    local k = string.sub(all[1], 1, 2) == 'i:' and 1 or 3
    local holder, hold = string.match(all[4 - k], '^o:(%S+)$'), string.match(all[k], '^i:(%x+)$')
    local held, token, serial = string.match(all[k + 1], '^([xs]) %S+ (%d+) (%d+) ')
    if not hold or hold == id or not holder or holder == owner or not held or held ~= 'x' and mode ~= 'x' then
      return nil
    end
    deadline, position = call('PEXPIRETIME', lock), 1
    if deadline < now or call('ZCARD', order) > 0 then
      return nil
    end
    call('HSET', lock, 'holds', '1', 'exclusive', held == 'x' and '1' or '0', 'serial', serial + 1,
      't:' .. holder, held .. token .. '=1', 'i:' .. id, place, 'w:' .. owner, id)
    call('ZADD', order, deadline, 'h:' .. hold, first_place + serial + 1, 'q:' .. id, later + over, 'd:' .. id)
    call('PEXPIREAT', lock, math.max(over, deadline))
    call('PEXPIREAT', order, math.max(over, deadline))
  else
    local has = call('HMGET', lock, 'holds', 'exclusive', 'serial', 'i:' .. id, 'o:' .. owner, 'w:' .. owner)
    -- The hold, and nobody who is dead.
    local held = call('ZRANGE', order, 0, string.format('(%.0f', later + now), 'BYSCORE', 'LIMIT', 0, 2, 'WITHSCORES')
    local serial = tonumber(has[3])
    deadline = tonumber(held[2])
    local blocked = has[2] == '1' or has[2] == '0' and mode == 'x'
    if has[1] ~= '1' or not blocked or not serial or has[4] or has[5] or #held ~= 2 or
      string.sub(held[1], 1, 2) ~= 'h:' or deadline < now or deadline >= later then
      return nil
    end
    call('HSET', lock, 'serial', serial + 1, 'i:' .. id, place, 'w:' .. owner, has[6] and has[6] .. ' ' .. id or id)
    call('ZADD', order, first_place + serial + 1, 'q:' .. id, later + over, 'd:' .. id)
    call('PEXPIREAT', lock, over, 'GT')
    call('PEXPIREAT', order, over, 'GT')
    position = call('ZRANK', order, 'q:' .. id) + 1
  end
  return {0, tonumber(last), position, deadline - now + 1 + 2 * math.min(position - 1, 20)}
end

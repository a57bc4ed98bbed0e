-- acquire: ask once for a hold, or for a place in the queue.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 due, 4 queue, 5 wait of the name
-- ARGV  1 id, 2 owner, 3 mode (x exclusive, s shared), 4 TTL in ms, 5 WaitTTL in ms,
--       6 queue (1 yes, 0 no), 7 number of tokens to reserve, 8 wake-up channel, 9 label
--
-- Returns {1, token}                                          held; the name was free
--         {1, token, lease left in ms, holds of this owner}   held
--         {0, last token, position, retry in ms}              queued
--         {-1, retry in ms}                                   held by others, no place asked for
--         {-2}                                                upgrade refused
--         {-3}                                                the id is buried
--
-- A free name costs 5 calls: EXISTS, TIME, SET, HSET, PEXPIRE.

local call = redis.call

if call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5]) == 0 then
  local time, span = call('TIME'), ARGV[7] - 1
  local token = time[1] * 1000000 + time[2]
  local number = string.format('%.0f', token)
  local before = call('SET', KEYS[1], span == 0 and number or string.format('%.0f', token + span), 'GET')
  if before and not (tonumber(before) and tonumber(before) < token) then
    -- The counter is ahead of the clock, or no counter. Put it right.
    local last = string.match(before, '^%d+$') and tonumber(before)
    if not last or last + span + 1 > 9007199254740992 then
      call('SET', KEYS[1], before)
      return {err = 'DLOCKFOREIGN the token counter'}
    end
    number = string.format('%.0f', last + 1)
    call('SET', KEYS[1], string.format('%.0f', last + 1 + span))
  end
  call('HSET', KEYS[2], 'o:' .. ARGV[2], '1',
    'i:' .. ARGV[1], ARGV[3] .. ' ' .. ARGV[2] .. ' ' .. number .. ' 1 ' .. ARGV[9])
  call('PEXPIRE', KEYS[2], ARGV[4])
  return {1, number}
end

-- include model.lua

local id, owner, mode = ARGV[1], ARGV[2], ARGV[3]
local ttl, waiting, tokens = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])

open(2)
settle()

local function held()
  local left = tonumber(redis.call('ZSCORE', due, id)) - now
  local count = tonumber(redis.call('HGET', lock, 'o:' .. owner))
  local token = tonumber(hold(id).token)
  close()
  return {1, token, left, count}
end

if buried(id) then
  close()
  return {-3}
end

-- Rule 1: the id is a hold.
local deadline = redis.call('ZSCORE', due, id)
if deadline then
  if now + ttl > tonumber(deadline) then
    redis.call('ZADD', due, now + ttl, id)
    changed = true
  end
  return held()
end

-- Rules 2 and 3: granted now.
local token = grantable(id, owner, mode, tokens)
if token then
  grant(id, owner, mode, token, now + ttl, ARGV[9])
  return held()
end
if holds_of(owner) > 0 then
  if redis.call('ZSCORE', queue, id) then
    leave(id)
    promote()
  end
  close()
  return {-2}
end

-- Rule 4: not now.
if ARGV[6] == '1' then
  enqueue(id, owner, mode, tokens, waiting, ARGV[8], ARGV[9])
end
local position = (redis.call('ZRANK', queue, id) or -1) + 1
local longest = redis.call('ZRANGE', due, -1, -1, 'WITHSCORES')[2] or now
local retry = longest - now + 1 + 2 * math.min(math.max(position - 1, 0), 20)
close()
if ARGV[6] ~= '1' then
  return {-1, retry}
end
return {0, last, position, retry}

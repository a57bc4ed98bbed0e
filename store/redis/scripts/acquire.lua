-- acquire: ask once for a hold, or for a place in the queue.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 order of the name
-- ARGV  1 id, 2 owner, 3 mode (x exclusive, s shared), 4 TTL in ms, 5 number of tokens to reserve,
--       6 label, 7 where to wait: WaitTTL in ms, space, wake-up channel; empty: nowhere
--
-- Returns token                                                     held; the name was free
--         {1, token, short, lease left in ms, holds of this owner}  held
--         {0, last token, position, retry in ms}                    queued
--         {-1, retry in ms}                                         held by others, and nowhere to wait
--         {-2}                                                      upgrade refused
--         {-3}                                                      the id is buried
--
-- Short is how many tokens fewer than asked for are reserved, or may be. The name was free: it stands
-- behind the token and a space, unless it is 0.
--
-- A free name costs 5 calls: HLEN, TIME, SET, HSET, PEXPIRE. A reader beside one other costs 10: HLEN,
-- TIME, HGETALL, PEXPIRETIME, ZCARD, SET, HSET, ZADD, 2 PEXPIREAT; and 9 beside more: HLEN, TIME,
-- HMGET, ZCARD, SET, HSET, ZADD, 2 PEXPIREAT. A writer's place costs 10 behind a lone hold: HLEN, GET,
-- TIME, HGETALL, PEXPIRETIME, ZCARD, HSET, ZADD, 2 PEXPIREAT; and 10 if others wait: HLEN, GET, TIME,
-- HMGET, ZRANGE, HSET, ZADD, 2 PEXPIREAT, ZRANK. A reader's costs 2 more.

local call = redis.call

-- include token.lua

local fields = call('HLEN', KEYS[2])
if fields == 0 then
  local token, short = take(call('TIME'), ARGV[5])
  call('HSET', KEYS[2], 'o:' .. ARGV[2], '1',
    'i:' .. ARGV[1], ARGV[3] .. ' ' .. ARGV[2] .. ' ' .. token .. ' 1 ' .. ARGV[6])
  call('PEXPIRE', KEYS[2], ARGV[4])
  return short == 0 and token or token .. ' ' .. short
end

local id, owner, mode, ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local tokens, label = tonumber(ARGV[5]), ARGV[6]
local waiting, channel = string.match(ARGV[7], '^(%d+) (%S+)$')

-- include join.lua

local reply = mode == 's' and join(fields, id, owner, ttl, label)
if reply then
  return reply
end

-- include queue.lua

reply = waiting and line_up(fields, id, owner, mode, waiting, channel)
if reply then
  return reply
end

-- include model.lua

present()
if last >= most - tokens then
  foreign('the token counter')
end
open(2)
settle()

-- held answers with the hold that there is now, and with how many tokens were reserved for it just now.
local function held(reserved)
  local left = deadline_of(id) - now
  local count = holds_of(owner)
  if count < 1 then
    foreign('a count of holds')
  end
  local token = tonumber(hold(id).token)
  close()
  return {1, token, tokens - reserved, left, count}
end

if buried(id) then
  close()
  return {-3}
end

-- Rule 1: the id is a hold. It is written even if nothing is new, so that a WAIT behind this speaks of it.
local deadline = deadline_of(id)
if deadline then
  redis.call('ZADD', order, math.max(deadline, now + ttl), 'h:' .. id)
  changed = true
  return held(1)
end

-- Rules 2 and 3: granted now.
local token, reserved = grantable(id, owner, mode, tokens)
if token then
  grant(id, owner, mode, token, now + ttl, label)
  return held(reserved)
end
if holds_of(owner) > 0 then
  if waits(id) then
    leave(id)
    promote()
  end
  close()
  return {-2}
end

-- Rule 4: not now.
if waiting then
  enqueue(id, owner, mode, tokens, waiting, channel, label)
end
local position = (redis.call('ZRANK', order, 'q:' .. id) or -1) + 1
local retry = math.max(latest_hold() - now, 0) + 1 + 2 * math.min(math.max(position - 1, 0), 20)
close()
if not waiting then
  return {-1, retry}
end
return {0, last, position, retry}

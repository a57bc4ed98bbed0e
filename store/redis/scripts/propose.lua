-- propose: grant a free name with a token that was chosen elsewhere. It runs before acquire, which then
-- finds the id as a hold, and grants all else.
--
-- KEYS  1 token counter of the partition; 2 lock of the name
-- ARGV  1 to 3 as of acquire; 4 number of tokens to reserve; 5 token
--
-- Returns 1 if it has granted, else 0: the name is not free, the counter has passed the token, or the
-- counter is lost, and then only the clock says which token is greater than all before.

local call = redis.call
local tokens, token = tonumber(ARGV[4]), tonumber(ARGV[5])
local last = string.match(call('GET', KEYS[1]) or '', '^%d+$')
if not last or token <= tonumber(last) or token > 9007199254740992 - tokens or call('HLEN', KEYS[2]) > 0 then
  return 0
end
call('SET', KEYS[1], string.format('%.0f', token + tokens - 1))
call('HSET', KEYS[2], 'L:' .. ARGV[1], string.format('%.0f ', token) .. ARGV[2])
call('PEXPIRE', KEYS[2], ARGV[3])
return 1

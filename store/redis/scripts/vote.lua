-- vote: what acquire does, for a node of a quorum. A free name is granted with a token that was chosen
-- elsewhere, if the counter has not come that far.
--
-- KEYS  as of acquire
-- ARGV  as of acquire; 5 token
--
-- Returns what acquire returns. A lost counter takes no token from elsewhere: only the clock then says
-- which token is greater than all before.
--
-- Calls: 5 for a free name (HLEN, GET, SET, HSET, PEXPIRE); else 1 more than acquire (HLEN).

if redis.call('HLEN', KEYS[2]) == 0 then
  local last = string.match(redis.call('GET', KEYS[1]) or '', '^%d+$')
  local token, tokens = tonumber(ARGV[5]), tonumber(string.match(ARGV[4], '^%d+'))
  if last and token > tonumber(last) and token <= 9007199254740992 - tokens then
    redis.call('SET', KEYS[1], string.format('%.0f', token + tokens - 1))
    redis.call('HSET', KEYS[2], 'L:' .. ARGV[1], ARGV[5] .. ' ' .. ARGV[2])
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
    return ARGV[5]
  end
end

-- include acquire.lua

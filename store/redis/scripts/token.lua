-- token: issue tokens in one call, for the scripts that include it.

-- take reserves consecutive tokens, and returns the first and how many fewer than asked for they
-- are. The last one is the clock's µs: tokens that were not given before are there for the taking,
-- and the counter never runs ahead of the clock, by which tokens grow on when the counter is lost.
-- For the same reason a counter that is not there has none from before. It works on the digits of
-- numbers, because to convert and format them takes as long as a call.
local function take(time, tokens)
  local token = time[1] .. string.sub('00000' .. time[2], -6)
  local before = redis.call('SET', KEYS[1], token, 'GET')
  if not before then
    return token, tokens - 1
  end
  if #before == #token and before < token and string.match(before, '^%d+$') then
    if tokens == '1' then
      return token, 0
    end
    local reserved = math.min(token - before, tokens)
    return string.format('%.0f', token - reserved + 1), tokens - reserved
  end
  -- The counter is not behind the clock, or no counter. Put it right.
  local number = string.match(before, '^%d+$') and tonumber(before)
  if not number or number >= 9007199254740992 - tokens then
    redis.call('SET', KEYS[1], before)
    error({err = 'DLOCKFOREIGN the token counter'})
  end
  token = string.format('%.0f', math.max(number + 1, tonumber(token)))
  redis.call('SET', KEYS[1], token)
  return token, tokens - 1
end

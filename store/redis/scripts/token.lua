-- token: issue tokens in one call, for the scripts that include it.

-- take reserves consecutive tokens and returns the first. It works on the digits of numbers, because
-- to convert and format them takes as long as a call.
local function take(time, tokens)
  local token = time[1] .. string.sub('00000' .. time[2], -6)
  local last = tokens == '1' and token or string.format('%.0f', token + tokens - 1)
  local before = redis.call('SET', KEYS[1], last, 'GET')
  if before and not (#before == #token and before < token and string.match(before, '^%d+$')) then
    -- The counter is not behind the clock, or no counter. Put it right.
    local number = string.match(before, '^%d+$') and tonumber(before)
    if not number or number >= 9007199254740992 - tokens then
      redis.call('SET', KEYS[1], before)
      error({err = 'DLOCKFOREIGN the token counter'})
    end
    token = string.format('%.0f', math.max(number + 1, tonumber(token)))
    redis.call('SET', KEYS[1], string.format('%.0f', token + tokens - 1))
  end
  return token
end

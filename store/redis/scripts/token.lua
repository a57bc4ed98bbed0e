-- token: numbers for grants. Every script but life includes this file.

local call = redis.call
local find_text, cut, byte = string.find, string.sub, string.byte
local limit = 64                 -- the most entries of a listed name
local counter = KEYS[1]          -- the token counter of the name's partition
local most = 9007199254740992    -- 2^53: Lua counts exactly up to here
local taken                      -- the token that this script has taken last
local proposed                   -- a token that was chosen elsewhere, for the first grant
local exhausted = false          -- the counter is at its end
local keep_lists                 -- set by index.lua: what to write before an error ends the script

-- expect returns a value. If it is false or nil it ends the script, because of data that it did not write.
local function expect(value, what)
  if not value then
    if keep_lists then keep_lists() end
    error({err = 'DLOCKFOREIGN ' .. what})
  end
  return value
end

-- after issues a token when the counter was set from before to token, the clock's µs, and reserves the
-- numbers between. It returns the first number, and how many numbers fewer than asked for are reserved.
-- It returns nil if the counter is at its end.
--
-- The last number of a span is the clock's µs. So no span pushes the counter ahead of the clock, and
-- tokens still grow when the counter is lost. For the same reason a lost counter yields one number.
-- The counter gets ahead by one for each further grant of a µs, and by tokens that were chosen elsewhere.
-- The digits are compared as text, because a conversion takes as long as a call.
local function after(before, token, tokens)
  if not before then
    taken = token
    return token, tokens - 1
  end
  if #before == #token and before < token and string.match(before, '^%d+$') then
    taken = token
    local reserved = math.min(token - before, tokens)
    if reserved == 1 then return token, tokens - 1 end
    return string.format('%.0f', token - reserved + 1), tokens - reserved
  end
  -- The counter is not behind the clock, or is no counter.
  local number = string.match(before, '^%d+$') and tonumber(before)
  if not number or number >= most - tokens then
    call('SET', counter, before)
    exhausted = true
    expect(number, 'the token counter')
    return nil
  end
  taken = string.format('%.0f', math.max(number + 1, tonumber(token)))
  call('SET', counter, taken)
  return taken, tokens - 1
end

-- take sets the counter to the clock and issues a token; see after.
--
-- A proposed token is taken if the counter is there and below it. When the counter is lost, only the
-- clock says which token is greater than all before. The clock may be ahead of a proposed token, so
-- taken does not keep it: the next grant of this script sets the counter to the clock.
local function take(time, tokens)
  if proposed then
    local token, last = tonumber(proposed), call('GET', counter)
    local digits = proposed
    proposed = nil
    if last and string.match(last, '^%d+$') and token > tonumber(last) and token <= most - tokens then
      call('SET', counter, string.format('%.0f', token + tokens - 1))
      return digits, 0
    end
  end
  local token = time[1] .. string.sub('00000' .. time[2], -6)
  return after(taken or call('SET', counter, token, 'GET'), token, tokens)
end

-- last_token reads the counter for a request that gets no token.
local function last_token(tokens)
  local last = string.match(call('GET', counter) or '0', '^%d+$')
  last = last and tonumber(last)
  return expect(last and last < most - tokens and last, 'the token counter')
end

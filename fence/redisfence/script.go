package redisfence

// Script is what Get and Set run, for other clients of Redis. Run it with EVAL
// or EVALSHA, on one key, and never have the client repeat it by itself.
//
// It returns 1 and the value before, or, for a stale token, 0 and the highest token
// seen. It fails with FENCEFOREIGN or WRONGTYPE if something else is at the key.
//
// Tokens are decimal, up to 2^64-1, without leading zeros. They are compared as
// text, the longer one being the higher, for numbers in Lua are exact only up to
// 2^53.
const Script = `
-- KEYS[1] the register, a hash with the fields token and value
-- ARGV[1] token
-- ARGV[2] the new value; without it the value is read
local function lower(a, b)
  return #a < #b or #a == #b and a < b
end
local function number(text)
  return text == '0' or string.match(text, '^[1-9]%d*$') and not lower('18446744073709551615', text)
end

local token = ARGV[1]
if not number(token) then
  return redis.error_reply('FENCETOKEN is not a number')
end
local highest, value = unpack(redis.call('HMGET', KEYS[1], 'token', 'value'))
if highest and not number(highest) or not highest and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('FENCEFOREIGN the hash is not a register')
end
highest = highest or '0'
if lower(token, highest) then
  return {0, highest}
end
if ARGV[2] then
  redis.call('HSET', KEYS[1], 'token', token, 'value', ARGV[2])
elseif token ~= highest then
  redis.call('HSET', KEYS[1], 'token', token) -- a read keeps older holders out, too
end
return {1, value}
`

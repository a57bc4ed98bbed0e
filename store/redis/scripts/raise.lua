-- raise: give a hold a token that was chosen elsewhere.
--
-- KEYS  1 token counter of the partition; 2 lock, 3 order of the name
-- ARGV  1 id, 2 token, 3 number of tokens to reserve from it on
--
-- Returns the token that the hold has then, 0 if the id is no hold.
--
-- A token that is no greater than the hold's changes nothing. An exclusive hold gets any greater one,
-- even if the counter, which serves other names too, is further: nobody else has got a token of this
-- name since the hold did. Among shared ones somebody may have, so there a token that is not ahead of
-- the counter is replaced by a new one.

-- include model.lua

open(2)
settle()
local id, token, tokens = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not deadline_of(id) then
  close()
  return 0
end
local h = hold(id)
if token <= tonumber(h.token) then
  close()
  return tonumber(h.token)
end
if h.mode == 's' and token <= last then
  token = math.max(last + 1, micros)
end
if token > most - tokens then
  foreign('the token counter')
end
last, issued = math.max(last, token + tokens - 1), true
count(h.owner, h.mode, h.token, -1)
count(h.owner, h.mode, string.format('%.0f', token), 1)
redis.call('HSET', lock, 'i:' .. id,
  string.format('%s %s %.0f %.0f ', h.mode, h.owner, token, h.number) .. h.label)
changed = true
close()
return token

-- raise: give a hold a token that was chosen elsewhere.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
-- ARGV  1 id, 2 token, 3 number of tokens to reserve from it on
--
-- Returns the token that the hold has then, 0 if the id is no hold.
--
-- A token that is no greater than the hold's changes nothing. An exclusive hold gets any greater one,
-- even if the counter, which serves other names too, is further: no other hold of this name has got
-- a token since. Among shared holds another may have, so a token that is not ahead of the counter is
-- replaced by a new one.

-- include token.lua
-- include record.lua
-- include name.lua

local id, token, tokens = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
name.load_name(2, call('HLEN', KEYS[2]))
name.delete_dead()
local hold = form.hold_of(id)
if hold and token > tonumber(hold.token) then
  local last = last_token(0)
  if hold.mode == 's' and token <= last then
    token = math.max(last + 1, name.time[1] * 1000000 + name.time[2])
  end
  expect(token <= most - tokens, 'the token counter')
  call('SET', counter, string.format('%.0f', math.max(last, token + tokens - 1)))
  hold.token = string.format('%.0f', token)
  form.put_hold(hold)
end
name.save_name()
return hold and tonumber(hold.token) or 0

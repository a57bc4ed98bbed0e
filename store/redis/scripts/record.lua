-- record: what is stored of a hold or a waiter. Fields of the table in name.lua.
--
-- A record is   <token> <mode> <owner> <rest>
--   of a hold:    its token; x exclusive or s shared; its owner; its label
--   of a waiter:  how many tokens it asks for; mode; owner; <WaitTTL in ms> <client> <label>
-- The client names the channel of the waiter's wake-up. No part but the label contains a space, and
-- none a control character: the Go side escapes labels.

-- An entry is a record with its id and its deadline in ms: {id, deadline, token, mode, owner, rest}.

  -- read_record makes an entry of the record that begins at the n-th byte of a text.
  read_record = function(id, deadline, text, n)
    local token, mode, owner, rest = string.match(text, '^(%d+) ([xs]) (%S+) (.*)$', n)
    if not token or #token > 16 or not deadline then
      foreign('a record')
    end
    return {id = id, deadline = deadline, token = token, mode = mode, owner = owner, rest = rest}
  end,

  write_record = function(e)
    return e.token .. ' ' .. e.mode .. ' ' .. e.owner .. ' ' .. e.rest
  end,

  -- buried_entry has the form of a hold, so that all lines are read alike.
  buried_entry = function(id, deadline)
    return {id = id, deadline = deadline, token = '0', mode = 'x', owner = '-', rest = ''}
  end,

  -- read_place returns WaitTTL, client and label of a waiter.
  read_place = function(e)
    local ms, client, label = string.match(e.rest, '^(%d+) (%x+) (.*)$')
    if not ms or #ms > 12 then
      foreign('the record of a waiter')
    end
    return ms, client, label
  end,

  -- read_lone returns the entry of a lone hold, but for its deadline. The lock has one field.
  read_lone = function(lock)
    local all = call('HGETALL', lock)
    local id = string.match(all[1], '^L:(%x+)$')
    if not id or #id ~= 32 then
      foreign('a hash')
    end
    return name.read_record(id, 0, all[2])
  end,

  -- expiry returns what PTTL or PEXPIRETIME says of a lone hold.
  expiry = function(command, lock)
    local ms = call(command, lock)
    return ms >= 0 and ms or foreign('a hold without expiry')
  end,

-- record: what is stored of a hold or a waiter, and the texts of the listed form. After token.lua.
--
-- A record is   <token> <mode> <owner> <rest>
--   of a hold:    its token; x exclusive or s shared; its owner; its label
--   of a waiter:  how many tokens it asks for; mode; owner; <WaitTTL in ms> <client> <label>
-- The client names the channel of the waiter's wake-up. No part but the label contains a space, and
-- none a control character: the Go side escapes labels.
--
-- The lock of a listed name has two or three fields, and each is a text of lines:
--   holds    in the order of their grants
--   waits    the queue, its head first
--   buried   ids that are refused; absent if there is none
-- A line is   <id, 32 digits> <deadline in ms, 13 digits> <record> <newline>
-- The lock expires with its last entry.

-- read_record returns the parts of the record that begins at the n-th byte of a text, and where the
-- next line begins.
local function read_record(text, n)
  local token, mode, owner, rest, next_line = string.match(text, '^(%d+) ([xs]) (%S+) ([^\n]*)\n?()', n)
  expect(token and #token <= 16, 'a record')
  return token, mode, owner, rest, next_line
end

-- read_place returns WaitTTL, client and label of a waiter.
local function read_place(rest)
  local ms, client, label = string.match(rest, '^(%d+) (%x+) (.*)$')
  expect(ms and #ms <= 12, 'the record of a waiter')
  return ms, client, label
end

-- write_line makes a line. The deadline is a text.
local function write_line(id, deadline, token, mode, owner, rest)
  return id .. ' ' .. deadline .. ' ' .. token .. ' ' .. mode .. ' ' .. owner .. ' ' .. rest .. '\n'
end

-- read_clock returns the reply of TIME, and the same in ms, as a number and as the text of a deadline.
local function read_clock()
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  return time, now, string.format('%013.0f', now)
end

-- scan returns the number of lines from a byte on, and the last of their deadlines and the one given.
-- It returns nil if a deadline is before now, or something is no line.
local function scan(text, from, now, latest)
  local number = 0
  while from <= #text do
    local ends, deadline = find_text(text, '\n', from, true), cut(text, from + 33, from + 45)
    if not ends or deadline < now then return nil end
    number, from, latest = number + 1, ends + 1, deadline > latest and deadline or latest
  end
  return number, latest
end

-- read_lone returns the id and the record of a lone hold.
local function read_lone(lock)
  local all = call('HGETALL', lock)
  local id = string.match(all[1], '^L:(%x+)$')
  expect(id and #id == 32, 'a hash')
  return id, all[2]
end

-- expiry returns what PTTL or PEXPIRETIME says of a lone hold.
local function expiry(command, lock)
  local ms = call(command, lock)
  return expect(ms >= 0 and ms, 'a hold without expiry')
end

-- read_lists returns the texts of a name: holds, waits, buried, and counts of an indexed one. Those of a
-- free or lone name are made, and the table says so: made is true, and lone the field of a lone hold,
-- whose id and record may be given.
local function read_lists(lock, fields, id, record)
  if fields > 1 then
    local text = call('HMGET', lock, 'holds', 'waits', 'buried', 'counts')
    -- Another field is a lone hold that a user without the right to HDEL left beside its lists. It
    -- is renewed while the lists count it dead.
    expect(text[4] or not text[1] or fields == (text[3] and 3 or 2), 'a hash')
    return text
  elseif fields == 0 then
    return {'', '', made = true}
  elseif not id then
    id, record = read_lone(lock)
  end
  local deadline = string.format('%013.0f', expiry('PEXPIRETIME', lock))
  return {id .. ' ' .. deadline .. ' ' .. record .. '\n', '', made = true, lone = 'L:' .. id}
end

-- save_lists writes the texts of a name that has entries. New fields are written before old ones are
-- deleted: while its slot moves to another node, a lock that has vanished could not be written again.
local function save_lists(lock, was, holds, waits, buried, latest)
  expect(tonumber(latest), 'a deadline')
  local lone = waits == '' and buried == '' and find_text(holds, '\n', 1, true) == #holds and 'L:' .. cut(holds, 1, 32)
  if lone then
    call('HSET', lock, lone, cut(holds, 48, -2))
    if not was.made then call('HDEL', lock, 'holds', 'waits', 'buried') end
  else
    call('HSET', lock, 'holds', holds, 'waits', waits)
  end
  if buried ~= '' and buried ~= was[3] then
    call('HSET', lock, 'buried', buried)
  elseif buried == '' and was[3] and not lone then
    call('HDEL', lock, 'buried')
  end
  if was.lone and was.lone ~= lone then call('HDEL', lock, was.lone) end
  call('PEXPIREAT', lock, latest)
end

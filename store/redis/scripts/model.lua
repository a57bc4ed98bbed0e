-- model: the lock model of package store, rule by rule, for the scripts that include it.
--
-- A name has up to two keys:
--   lock   hash   o:<owner>  how many live ids the owner has
--                 i:<id>     what is known of a hold or waiter, or b for a buried id
--                 and, unless the hold is a lone one:
--                 t:<owner>  the tokens of the owner's holds: <mode><token>=<number of ids> ...
--                 w:<owner>  the ids of the owner that wait
--                 holds, exclusive   how many live ids in all, and exclusive ones
--                 serial     counts grants and places
--   order  zset   in three bands of scores
--                 q:<id>     the place of a waiter: -2^52 + serial, so its rank is its position
--                 h:<id>     the deadline of a hold in ms
--                 d:<id>     the deadline of a waiter, or of a buried id: 2^50 + ms
-- and it is in one of three forms:
--   free   neither key is there;
--   lone   one hold and nothing else. The hash has two fields, there is no order, and the expiry of
--          the hash is the hold's deadline;
--   full   everything else. Both keys expire with the last entry, or up to a minute later.
--
-- An entry is dead when its deadline is before now, in whole milliseconds. That is how Redis
-- expires keys, and the longer of the two readings of "not after".

local counter = KEYS[1]                 -- key of the token counter of its partition
local lock, order                       -- keys of the name that is open
local holds, exclusive, serial, changed -- its numbers, and whether it has to be written back
local now, micros                       -- the server's present, in ms and µs
local last, issued                      -- the last token, and whether it is a new one
local wakes = {}
local gone = {} -- by owner: ids that wait no more and are still on his list

local first_place = -4503599627370496 -- -2^52
local later = 1125899906842624        -- 2^50: where the deadlines of waiters begin
local most = 9007199254740992         -- 2^53: up to there Lua counts exactly

-- waiting_ids iterates over the owner's list: his ids that wait, in the order of their places.
local function waiting_ids(owner)
  return string.gmatch(redis.call('HGET', lock, 'w:' .. owner) or '', '%x+')
end

local function set_waiting_ids(owner, ids)
  if #ids > 0 then
    redis.call('HSET', lock, 'w:' .. owner, table.concat(ids, ' '))
  else
    redis.call('HDEL', lock, 'w:' .. owner)
  end
end

-- strike_gone takes the ids that are gone off the lists of their owners, all at once: a list may be
-- as long as they are many.
local function strike_gone()
  for owner, ids in pairs(gone) do
    local others = {}
    for other in waiting_ids(owner) do
      if not ids[other] then
        others[#others + 1] = other
      end
    end
    set_waiting_ids(owner, others)
  end
  gone = {}
end

-- strike takes an id off the owner's list.
local function strike(id, owner)
  gone[owner] = {[id] = true}
  strike_gone()
end

-- keep writes the numbers and lists of the open name back, and the counter.
local function keep()
  strike_gone()
  if changed then
    redis.call('HSET', lock, 'holds', holds, 'exclusive', exclusive, 'serial', serial)
  end
  if issued then
    redis.call('SET', counter, string.format('%.0f', last))
    issued = false
  end
end

-- foreign ends the script because of data that is not its own. What it has done until then stays
-- done, so the numbers have to agree with it.
local function foreign(what)
  keep()
  error({err = 'DLOCKFOREIGN ' .. what})
end

local function hold(id)
  local record = redis.call('HGET', lock, 'i:' .. id) or ''
  local mode, owner, token, number, label = string.match(record, '^([xs]) (%S+) (%d+) (%d+) (.*)$')
  if not mode then
    foreign('the record of a hold')
  end
  return {mode = mode, owner = owner, token = token, number = tonumber(number), label = label}
end

local function waiter(id)
  local record = redis.call('HGET', lock, 'i:' .. id) or ''
  local mode, owner, tokens, ms, channel, label =
    string.match(record, '^([xs]) (%S+) (%d+) (%d+) (%S+) (.*)$')
  if not mode then
    foreign('the record of a waiter')
  end
  return {mode = mode, owner = owner, tokens = tonumber(tokens), ms = tonumber(ms),
    channel = channel, label = label}
end

local function buried(id)
  return redis.call('HGET', lock, 'i:' .. id) == 'b'
end

local function holds_of(owner)
  local number = redis.call('HGET', lock, 'o:' .. owner) or '0'
  return #number < 16 and string.match(number, '^%d+$') and tonumber(number) or foreign('a count of holds')
end

-- deadline of a hold, or nil if the id is none.
local function deadline_of(id)
  return tonumber(redis.call('ZSCORE', order, 'h:' .. id) or nil)
end

local function waits(id)
  return redis.call('ZSCORE', order, 'q:' .. id)
end

-- head is the id of the first waiter, or nil.
local function head()
  return string.match(redis.call('ZRANGE', order, 0, 0)[1] or '', '^q:(.*)$')
end

-- latest is the last deadline of a band, or 0.
local function latest(from, to)
  return tonumber(redis.call('ZRANGE', order, to, from, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2] or 0)
end

local function latest_hold()
  return latest(0, later - 1)
end

-- present reads the clock and the counter, once a script.
local function present()
  if now then
    return
  end
  local value, time = redis.call('GET', counter) or '0', redis.call('TIME')
  last = string.match(value, '^%d+$') and tonumber(value)
  if not last or last > most then
    foreign('the token counter')
  end
  micros = time[1] * 1000000 + time[2]
  now = math.floor(micros / 1000)
end

-- count adds by to the number of ids that have this token.
local function count(owner, mode, token, by)
  local field, this, list = 't:' .. owner, mode .. token, {}
  for key, number in string.gmatch(redis.call('HGET', lock, field) or '', '(%a%d+)=(%d+)') do
    if key == this then
      by = by + number
    else
      list[#list + 1] = key .. '=' .. number
    end
  end
  if by > 0 then
    list[#list + 1] = this .. '=' .. by
  end
  if #list > 0 then
    redis.call('HSET', lock, field, table.concat(list, ' '))
  else
    redis.call('HDEL', lock, field)
  end
end

-- unfold turns a lone hold into the full form.
local function unfold()
  local fields, id, owner = redis.call('HGETALL', lock), nil, nil
  for i = 1, 3, 2 do
    id = id or string.match(fields[i], '^i:(%x+)$')
    owner = owner or string.match(fields[i], '^o:(%S+)$')
  end
  local deadline = redis.call('PEXPIRETIME', lock)
  if not id or not owner or deadline < 0 then
    foreign('a hash')
  end
  local h = hold(id)
  holds, exclusive, serial, changed = 1, h.mode == 'x' and 1 or 0, h.number, true
  count(owner, h.mode, h.token, 1)
  redis.call('ZADD', order, deadline, 'h:' .. id)
end

-- open begins with the name whose keys start at KEYS[k]. It reads all of them before anything is
-- written, so a key of another type is found while nothing has changed.
local function open(k)
  lock, order, gone = KEYS[k], KEYS[k + 1], {}
  present()
  local numbers = redis.call('HMGET', lock, 'holds', 'exclusive', 'serial')
  local ordered = redis.call('ZCOUNT', order, 0, later - 1)
  holds, exclusive, serial = tonumber(numbers[1]), tonumber(numbers[2]), tonumber(numbers[3])
  changed = false
  if holds and exclusive and serial then
    if holds ~= ordered then
      -- Somebody deleted a part. What is left of a lock is no lock.
      redis.call('DEL', lock, order)
      holds, exclusive, serial = 0, 0, 0
    end
    return
  end
  -- A lone hold or a free name: an order is left from a lock that somebody deleted.
  redis.call('DEL', order)
  local fields = redis.call('HLEN', lock)
  if fields == 2 then
    unfold()
  elseif fields == 0 then
    holds, exclusive, serial = 0, 0, 0
  else
    foreign('a hash')
  end
end

-- fold turns the full form of one hold and nothing else into a lone hold.
local function fold()
  local only = redis.call('ZRANGE', order, 0, 0, 'WITHSCORES')
  local id = string.sub(only[1], 3)
  redis.call('HDEL', lock, 'holds', 'exclusive', 'serial', 't:' .. hold(id).owner)
  redis.call('DEL', order)
  redis.call('PEXPIREAT', lock, only[2])
end

-- close writes back what has changed and sends the wake-ups.
local function close()
  if changed then
    local entries = redis.call('ZCARD', order)
    if entries == 0 then
      redis.call('DEL', lock, order)
    elseif holds == 1 and entries == 1 then
      fold()
    else
      keep()
      local over = math.max(latest_hold(), latest(later, '+inf') - later)
      redis.call('PEXPIREAT', lock, over)
      redis.call('PEXPIREAT', order, over)
    end
  end
  changed = false
  keep()
  for _, wake in ipairs(wakes) do
    -- Without the right to publish a release is still a release; the waiter asks by itself.
    redis.pcall('SPUBLISH', wake.channel, wake.message)
  end
  wakes = {}
end

-- issue reserves consecutive tokens, as many as asked for if so many are left behind the clock, and
-- returns the first and their number, or nil if there is none. See token.lua.
local function issue(tokens)
  local first = math.max(last + 1, micros)
  if first > most - tokens then
    return nil
  end
  local reserved = last > 0 and math.max(math.min(micros - last, tokens), 1) or 1
  last, issued = first, true
  return first - reserved + 1, reserved
end

-- drop removes a hold.
local function drop(id)
  local h = hold(id)
  redis.call('ZREM', order, 'h:' .. id)
  redis.call('HDEL', lock, 'i:' .. id)
  if redis.call('HINCRBY', lock, 'o:' .. h.owner, -1) <= 0 then
    redis.call('HDEL', lock, 'o:' .. h.owner)
  end
  count(h.owner, h.mode, h.token, -1)
  holds, changed = holds - 1, true
  if h.mode == 'x' then
    exclusive = exclusive - 1
  end
end

-- vacate removes a place. The owner's list is the caller's business.
local function vacate(id)
  redis.call('ZREM', order, 'q:' .. id, 'd:' .. id)
  redis.call('HDEL', lock, 'i:' .. id)
  changed = true
end

-- unseat takes a place from what has just become a hold. Not before: what is left might be nothing, and
-- a key that is gone cannot be made anew while its slot moves to another node.
local function unseat(id)
  redis.call('ZREM', order, 'q:' .. id, 'd:' .. id)
end

-- leave gives up a place.
local function leave(id)
  local owner = waiter(id).owner
  vacate(id)
  strike(id, owner)
end

-- enqueue gives a place, or keeps the one there is, for waiting more milliseconds.
local function enqueue(id, owner, mode, tokens, waiting, channel, label)
  if not waits(id) then
    serial = serial + 1
    redis.call('ZADD', order, first_place + serial, 'q:' .. id)
    local others = redis.call('HGET', lock, 'w:' .. owner)
    redis.call('HSET', lock, 'w:' .. owner, others and others .. ' ' .. id or id)
  end
  redis.call('ZADD', order, later + now + waiting, 'd:' .. id)
  redis.call('HSET', lock, 'i:' .. id,
    table.concat({mode, owner, tokens, waiting, channel, label}, ' '))
  changed = true
end

-- reentry is rule 2 without the upgrade: the greatest token of a hold that the owner has, of a
-- writer's if he has one, or nil.
local function reentry(owner, mode)
  local greatest = {}
  for m, token in string.gmatch(redis.call('HGET', lock, 't:' .. owner) or '', '(%a)(%d+)=') do
    greatest[m] = math.max(greatest[m] or 0, tonumber(token))
  end
  return greatest.x or mode == 's' and greatest.s or nil
end

-- grantable decides rules 2 and 3 for a request that is no hold yet: the token to grant it with,
-- a new one if it needs one, and how many are reserved, or nil.
local function grantable(id, owner, mode, tokens)
  local token = reentry(owner, mode)
  if token then
    return token, 1
  end
  local own = holds_of(owner)
  if holds > own and (mode == 'x' or exclusive > 0) then
    return nil
  end
  -- An upgrade asks nobody in the queue. For everyone else: whoever could pass together with
  -- it was promoted before it asked, so a queue blocks unless it is at the head itself.
  if own == 0 then
    local first = head()
    if first and first ~= id then
      return nil
    end
  end
  return issue(tokens)
end

-- admit makes a hold.
local function admit(id, owner, mode, token, deadline, label)
  holds, serial, changed = holds + 1, serial + 1, true
  if mode == 'x' then
    exclusive = exclusive + 1
  end
  redis.call('HINCRBY', lock, 'o:' .. owner, 1)
  -- The label is put behind it, for format ends it at a NUL.
  redis.call('HSET', lock, 'i:' .. id,
    string.format('%s %s %.0f %.0f ', mode, owner, token, serial) .. label)
  redis.call('ZADD', order, deadline, 'h:' .. id)
  count(owner, mode, string.format('%.0f', token), 1)
end

-- grant_waiting grants a request whose client is not asking just now: it has its WaitTTL to show
-- that it is there, and is told by an event. The owner's list is the caller's business.
local function grant_waiting(id, w, token, reserved)
  wakes[#wakes + 1] = {channel = w.channel, message = string.format('%s %.0f %d', id, token, w.tokens - reserved)}
  admit(id, w.owner, w.mode, token, now + w.ms, w.label)
  unseat(id)
end

-- grant_siblings grants those waiting requests of a holder that re-entry allows. One pass is enough:
-- what it grants changes nothing for those it has passed over, which are upgrades that wait for other
-- owners. The records are read first, so that a foreign one is found before the list is out of date.
local function grant_siblings(owner)
  local waiting, others = {}, {}
  for id in waiting_ids(owner) do
    if waits(id) then
      waiting[#waiting + 1] = {id = id, w = waiter(id)}
    end
  end
  for _, s in ipairs(waiting) do
    local token, reserved = grantable(s.id, owner, s.w.mode, s.w.tokens)
    if token then
      grant_waiting(s.id, s.w, token, reserved)
    else
      others[#others + 1] = s.id
    end
  end
  if #others < #waiting then
    set_waiting_ids(owner, others)
  end
end

-- grant makes a hold, and with it of those waiting requests of its owner that re-entry allows.
local function grant(id, owner, mode, token, deadline, label)
  local waited = waits(id)
  if waited then
    strike(id, waiter(id).owner)
  end
  admit(id, owner, mode, token, deadline, label)
  if waited then
    unseat(id)
  end
  grant_siblings(owner)
end

-- promote grants from the head of the queue as far as the rules allow.
local function promote()
  while true do
    local id = head()
    local w = id and waiter(id)
    if not w then
      return
    end
    local token, reserved = grantable(id, w.owner, w.mode, w.tokens)
    if not token then
      return
    end
    strike(id, w.owner)
    grant_waiting(id, w, token, reserved)
    grant_siblings(w.owner)
  end
end

-- each_dead calls f with each id of a band whose deadline has passed.
local function each_dead(band, f)
  while true do
    local dead = redis.call('ZRANGE', order, band, string.format('(%.0f', band + now), 'BYSCORE', 'LIMIT', 0, 100)
    for _, member in ipairs(dead) do
      f(string.sub(member, 3))
    end
    if #dead < 100 then
      return
    end
  end
end

-- settle removes what has died, which is a removal like any other.
local function settle()
  each_dead(0, drop)
  each_dead(later, function(id)
    if waits(id) then
      local owner = waiter(id).owner
      vacate(id)
      gone[owner] = gone[owner] or {}
      gone[owner][id] = true
      return
    end
    redis.call('ZREM', order, 'd:' .. id)
    redis.call('HDEL', lock, 'i:' .. id)
    changed = true
  end)
  strike_gone()
  promote()
end

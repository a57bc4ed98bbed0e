-- acquire: ask once for a hold, or for a place in the queue.
--
-- KEYS  1 token counter of the partition; 2 lock of the name, 3 its order if it is indexed
-- ARGV  1 id; 2 <mode: x exclusive, s shared> <owner> <label>; 3 TTL in ms; 4 number of tokens to
--       reserve, a space, and to queue: <WaitTTL in ms> <client>; 5 of a vote: the proposed token
--
-- Returns token, or <token> <short>                                    held; the name was free
--         {1, token, short, lease left in ms, holds of this owner}     held
--         {0, last token, position, retry in ms, <age in ms> <label>}  queued
--         {-1, retry in ms, label}                                     held by others, and not queued
--         {-2}                                                         upgrade refused
--         {-3}                                                         the id is buried
--
-- Short is how many tokens fewer than asked for are reserved, or may be. Label and age are of one holder.
--
-- Calls: 5 for a free name (HLEN, TIME, SET, HSET, PEXPIRE), 6 with a proposed token (and GET); 3 that
-- write nothing for a refusal by a lone hold (HLEN, HGETALL, PTTL); 4 for an id that is a lone hold (the
-- same and PEXPIRE); 8 for a place behind a lone hold, and a reader's hold beside one (HLEN, TIME,
-- HGETALL, PEXPIRETIME, GET or SET, HSET, HDEL, PEXPIREAT); 6 behind or beside more (HLEN, TIME, HMGET,
-- GET or SET, HSET, PEXPIREAT).

local call = redis.call

-- write_lone writes the hold of a free name and returns the reply. A hold that gets no expiry, for want
-- of the right, is deleted: it would stay for ever.
local function write_lone(token, reply)
  call('HSET', KEYS[2], 'L:' .. ARGV[1], token .. ' ' .. ARGV[2])
  local expires = redis.pcall('PEXPIRE', KEYS[2], ARGV[3])
  if expires == 1 then return reply end
  call('DEL', KEYS[2])
  return expires
end

local fields = call('HLEN', KEYS[2])
local token, before
if fields == 0 and not ARGV[5] then
  local time = call('TIME')
  token = time[1] .. string.sub('00000' .. time[2], -6)
  before = call('SET', KEYS[1], token, 'GET')
  -- One token, and the counter behind the clock: the functions below take as long as a call to define.
  if before and before < token and #before == #token and string.find(before, '^%d+$') and string.find(ARGV[4], '^1 ') then
    return write_lone(token, token)
  end
end

-- include token.lua

proposed = ARGV[5]
if fields == 0 then
  local short, tokens = nil, tonumber(string.match(ARGV[4], '^%d+'))
  if proposed then
    token, short = take(call('TIME'), tokens)
  else
    token, short = after(before, token, tokens)
  end
  expect(token, 'the token counter')
  return write_lone(token, short == 0 and token or token .. ' ' .. short)
end

-- include record.lua

local id, tokens, place = ARGV[1], string.match(ARGV[4], '^(%d+) (.*)$')
local mode, owner, label = string.match(ARGV[2], '^([xs]) (%S+) (.*)$')
local holder, record
if fields == 1 then
  holder, record = read_lone(KEYS[2])
  local token, held, other, by = read_record(record, 1)
  if holder == id then
    -- Rule 1. It is written even if nothing is new, so that a WAIT behind this speaks of it.
    local left = math.max(expiry('PTTL', KEYS[2]), ARGV[3])
    call('PEXPIRE', KEYS[2], left)
    return {1, tonumber(token), tokens - 1, left, 1}
  elseif place == '' and other ~= owner and (held == 'x' or mode == 'x') then
    return {-1, expiry('PTTL', KEYS[2]) + 1, by}
  end
end
local text = read_lists(KEYS[2], fields, holder, record)

-- include enter.lua

local reply = enter(text, id, tokens, place, mode, owner, label)
if reply then return reply end

-- include name.lua

local e = {id = id, token = tokens, mode = mode, owner = owner, rest = label}
name.load_name(2, fields, text)
name.delete_dead()
if form.is_buried(id) then
  name.save_name()
  return {-3}
end

-- Rule 1: the id is a hold.
local hold, short, token = form.hold_of(id), e.token - 1
local last
if hold then
  hold.deadline = math.max(hold.deadline, name.now + ARGV[3])
  form.put_hold(hold)
else
  -- Rules 2 and 3: granted now.
  local waiter = form.waiter_of(id)
  token, short = name.grantable(e)
  expect(not exhausted, 'the token counter')
  if token then
    e.token, e.deadline, hold = token, name.now + ARGV[3], e
    form.put_hold(hold)
    if waiter then form.delete_waiter(waiter, true) end
    name.grant_siblings(e.owner)
  elseif form.owned(e.owner) > 0 then
    if waiter then
      form.delete_waiter(waiter)
      name.promote()
    end
    name.save_name()
    return {-2}
  elseif place ~= '' then -- rule 4: not now
    last = last_token(tonumber(tokens)) -- it may fail, when nothing is written yet
    waiter = waiter or e
    waiter.rest = place .. ' ' .. label
    waiter.deadline = name.now + string.match(place, '^%d+')
    form.put_waiter(waiter)
  end
end
if hold then
  local own = form.owned(e.owner)
  expect(own > 0, 'a count of holds')
  name.save_name()
  return {1, tonumber(hold.token), short, hold.deadline - name.now, own}
end

local latest, label, granted = form.last_hold()
local position = form.position(id)
local retry = math.max(latest - name.now, 0) + 1 + 2 * math.min(math.max(position - 1, 0), 20)
if place == '' then
  name.save_name()
  return {-1, retry, label or ''}
end
name.save_name()
return {0, last, position, retry, label and math.max(name.now - math.floor(granted / 1000), 0) .. ' ' .. label or ''}

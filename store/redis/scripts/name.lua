-- name: load and save the state of a name, and the rules of package store. After token.lua.
--
-- A name is in one of four forms:
--   free      no key is there
--   lone      one hold and nothing else. The lock is a hash of one field, L:<id> with the hold's
--             record, and expires at the hold's deadline
--   listed    up to limit entries, see list.lua
--   indexed   more, see index.lua
-- A script that leaves fewer entries changes the form back. An entry is dead when its deadline is
-- before now, in whole ms, as a key is expired for Redis.


-- name has the state and the functions of the name that is loaded. It is one table, because Lua takes
-- longer to make a function, the more locals functions share.
--   lock, order                  its keys
--   holds, waits, buried         its lines
--   was_holds, was_waits         the fields that were read, was_buried too,
--   was_lone                     and the id of the hold that was a lone one
--   changed                      something has to be written
--   listed                       what functions of the indexed form have taken the place of
--   now, digits, time            the server's present: in ms, the same as text, the reply of TIME
--   wakes                        wake-ups that save_name sends
--   looking                      the script writes nothing
local name

-- include index.lua

name = {
-- include record.lua
-- include list.lua

  -- need_order ends a script that was called without the key of an indexed name. It has changed
  -- nothing but the counter, and is called again with the key.
  --
  -- Scripts are called without it at first: while a slot moves to another node, a call that names a
  -- key which does not exist is refused.
  need_order = function()
    if not name.order then
      error({err = 'DLOCKINDEXED'})
    end
  end,

  open_lists = function(h, w, b)
    name.holds, name.waits, name.buried, name.changed = h, w, b, false
    name.was_holds, name.was_waits, name.was_buried, name.was_lone = nil, nil, nil, nil
    if name.listed then
      for field, f in pairs(name.listed) do
        name[field] = f
      end
      name.listed, keep_lists = nil, nil
    end
  end,

  -- load_name reads the name whose lock is KEYS[k]. It reads before anything is written, so a key of
  -- another type ends the script while nothing has changed. Fields is the number of the lock's fields;
  -- text is those of the listed form, if they have been read.
  load_name = function(k, fields, text)
    name.lock, name.order = KEYS[k], KEYS[k + 1]
    if counter ~= KEYS[k - 1] then
      counter, taken = KEYS[k - 1], nil
    end
    if not name.now then
      name.read_clock()
    end
    if fields == 0 then
      name.open_lists({}, {}, {})
    elseif fields == 1 then
      local lone = name.read_lone(name.lock)
      lone.deadline = name.expiry('PEXPIRETIME', name.lock)
      name.open_lists({name.write_line(lone)}, {}, {})
      name.was_lone = lone.id
    else
      text = text or call('HMGET', name.lock, 'holds', 'waits', 'buried', 'counts')
      if text[1] and text[2] and not text[4] then
        name.open_lists(name.split(text[1]), name.split(text[2]), text[3] and name.split(text[3]) or {})
        name.was_holds, name.was_waits, name.was_buried = text[1], text[2], text[3]
        for i = 1, #name.holds do
          if not find_text(name.holds[i], '^%d+ %d+ [xs] ', 34) then
            foreign('a hold')
          end
        end
      elseif text[4] and not text[1] then
        name.need_order()
        name.open_lists({}, {}, {})
        local form = index_form(text[4])
        if form.is_whole() then
          name.listed = {}
          for field, f in pairs(form) do
            name.listed[field], name[field] = name[field], f
          end
        else
          -- A part was deleted by hand. What is left of a lock is no lock.
          keep_lists = nil
          if not name.looking then
            call('DEL', name.lock, name.order)
          end
        end
      else
        foreign('a hash')
      end
    end
  end,

  -- index_lists turns the lists into the indexed form.
  index_lists = function()
    name.need_order()
    call('DEL', name.order)
    local made = index_form('0 0 0')
    for _, line in ipairs(name.holds) do
      made.put_hold(name.read_line(line))
    end
    for _, line in ipairs(name.waits) do
      made.put_waiter(name.read_line(line))
    end
    for _, line in ipairs(name.buried) do
      made.bury(cut(line, 1, 32), tonumber(cut(line, 34, 46)))
    end
    made.save_index()
    keep_lists = nil
    call('HDEL', name.lock, 'holds', 'waits', 'buried', 'L:' .. (name.was_lone or ''))
  end,

  -- save_name writes what has changed and sends the wake-ups.
  save_name = function()
    if name.changed then
      name.save()
      name.changed = false
    end
    for _, wake in ipairs(name.wakes or {}) do
      -- Without the right to publish a release is still a release; the waiter asks by itself.
      redis.pcall('SPUBLISH', cut(counter, 1, -6) .. 'wake:' .. wake.client, wake.message)
    end
    name.wakes = nil
  end,

  -- grantable decides rules 2 and 3 for an entry that is no hold yet. It returns the token to grant it
  -- with, and how many tokens fewer than asked for are reserved; or nil.
  grantable = function(e)
    local own, exclusive, shared = name.owned(e.owner)
    local token = exclusive or e.mode == 's' and shared
    if token then
      return string.format('%.0f', token), e.token - 1
    end
    if name.numbers() > own and (e.mode == 'x' or name.has_writer()) then
      return nil
    end
    -- An upgrade ignores the queue. Otherwise a queue is in the way, unless e is its head: a waiter
    -- that could be granted together with e was promoted before e asked.
    if own == 0 then
      local first = name.head()
      if first and first.id ~= e.id then
        return nil
      end
    end
    return take(name.time, tonumber(e.token))
  end,

  -- grant_waiter grants a waiter, whose client hears of it by an event and has WaitTTL to renew.
  grant_waiter = function(w, token, short)
    local ms, client, label = name.read_place(w)
    name.put_hold({id = w.id, deadline = name.now + ms, token = token, mode = w.mode, owner = w.owner, rest = label})
    name.delete_waiter(w, true)
    name.wakes = name.wakes or {}
    name.wakes[#name.wakes + 1] = {client = client, message = w.id .. ' ' .. token .. ' ' .. short}
  end,

  -- grant_siblings grants the waiters of a holder that re-entry allows. One pass is enough: what it
  -- grants does not help the waiters it has passed, which are upgrades that other owners are in the
  -- way of.
  grant_siblings = function(owner)
    for _, w in ipairs(name.waiters_of(owner)) do
      local token, short = name.grantable(w)
      if token then
        name.grant_waiter(w, token, short)
      end
    end
  end,

  -- promote grants from the head of the queue as far as the rules allow.
  promote = function()
    local w = name.head()
    while w do
      local token, short = name.grantable(w)
      if not token then
        return
      end
      name.grant_waiter(w, token, short)
      name.grant_siblings(w.owner)
      w = name.head()
    end
  end,

  -- delete_dead deletes dead entries, which promotes like every removal.
  delete_dead = function()
    if name.forget_dead() then
      name.promote()
    end
  end,
}

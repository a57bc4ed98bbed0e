-- name: load and save the state of a name, and the rules of package store. After record.lua.
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
--   was                          what read_lists returned
--   holds, waits, buried         its lines
--   changed                      something has to be written
--   now, digits, time            the server's present: in ms, the same as text, the reply of TIME
--   wakes                        grants of waiters, which save_name sends
--   looking                      the script writes nothing
local name
local form -- the functions of the form that the name is in: those of list.lua, or of index.lua

-- include list.lua
-- include index.lua

name = {
  wakes = {},

  -- need_order ends a script that was called without the key of an indexed name. It has changed
  -- nothing but the counter, and is called again with the key.
  --
  -- Scripts are called without it at first: while a slot moves to another node, a call that names a
  -- key which does not exist is refused.
  need_order = function()
    if not name.order then error({err = 'DLOCKINDEXED'}) end
  end,

  -- open_lists takes the texts of read_lists for the state of the name.
  open_lists = function(text)
    name.was, name.changed, form, keep_lists = text, false, list, nil
    name.holds, name.waits, name.buried = split(text[1]), split(text[2]), split(text[3] or '')
  end,

  -- load_name reads the name whose lock is KEYS[k]. It reads before anything is written, so a key of
  -- another type ends the script while nothing has changed. Fields is the number of the lock's fields;
  -- text is what read_lists has returned, if it was called.
  load_name = function(k, fields, text)
    name.lock, name.order, keep_lists = KEYS[k], KEYS[k + 1], nil
    if counter ~= KEYS[k - 1] then counter, taken = KEYS[k - 1], nil end
    if not name.now then name.time, name.now, name.digits = read_clock() end
    text = text or read_lists(name.lock, fields)
    if text[1] and text[2] and not text[4] then
      name.open_lists(text)
    else
      expect(text[4] and not text[1], 'a hash')
      name.need_order()
      name.open_lists(read_lists(name.lock, 0))
      form = index_form(text[4])
      if not form.is_whole() then
        -- A part was deleted by hand. What is left of a lock is no lock.
        form, keep_lists = list, nil
        if not name.looking then call('DEL', name.lock, name.order) end
      end
    end
  end,

  -- index_lists turns the lists into the indexed form.
  index_lists = function()
    name.need_order()
    call('DEL', name.order)
    local made = index_form('0 0 0')
    local h, w, b = list.entries()
    for _, e in ipairs(h) do made.put_hold(e) end
    for _, e in ipairs(w) do made.put_waiter(e) end
    for _, e in ipairs(b) do made.bury(e.id, e.deadline) end
    made.save_index()
    keep_lists = nil
    call('HDEL', name.lock, 'holds', 'waits', 'buried', name.was.lone or 'L:')
  end,

  -- save_name writes what has changed and sends the wake-ups.
  save_name = function()
    if name.changed then form.save() end
    name.changed = false
    for _, granted in ipairs(name.wakes) do
      redis.pcall('SPUBLISH', cut(counter, 1, -6) .. 'wake:' .. granted.client, granted.message)
    end
    name.wakes = {}
  end,

  -- grantable decides rules 2 and 3 for an entry that is no hold yet. It returns the token to grant it
  -- with, and how many tokens fewer than asked for are reserved; or nil.
  grantable = function(e)
    local own, exclusive, shared = form.owned(e.owner)
    local token = exclusive or e.mode == 's' and shared
    if token then return string.format('%.0f', token), e.token - 1 end
    if form.numbers() > own and (e.mode == 'x' or form.has_writer()) then return nil end
    -- An upgrade ignores the queue. Otherwise a queue is in the way, unless e is its head: a waiter
    -- that could be granted together with e was promoted before e asked.
    if own == 0 then
      local first = form.head()
      if first and first.id ~= e.id then return nil end
    end
    return take(name.time, tonumber(e.token))
  end,

  -- grant_waiter grants a waiter, whose client hears of it by an event and has WaitTTL to renew.
  grant_waiter = function(w, token, short)
    local ms, client, label = read_place(w.rest)
    form.put_hold({id = w.id, deadline = name.now + ms, token = token, mode = w.mode, owner = w.owner, rest = label})
    form.delete_waiter(w, true)
    name.wakes[#name.wakes + 1] = {client = client, message = w.id .. ' ' .. token .. ' ' .. short}
  end,

  -- grant_siblings grants the waiters of a holder that re-entry allows. One pass is enough: what it
  -- grants does not help the waiters it has passed, which are upgrades that other owners are in the
  -- way of.
  grant_siblings = function(owner)
    for _, w in ipairs(form.waiters_of(owner)) do
      local token, short = name.grantable(w)
      if token then name.grant_waiter(w, token, short) end
    end
  end,

  -- promote grants from the head of the queue as far as the rules allow.
  promote = function()
    local w = form.head()
    while w do
      local token, short = name.grantable(w)
      if not token then return end
      name.grant_waiter(w, token, short)
      name.grant_siblings(w.owner)
      w = form.head()
    end
  end,

  -- delete_dead deletes dead entries, which promotes like every removal.
  delete_dead = function()
    if form.forget_dead() then name.promote() end
  end,
}

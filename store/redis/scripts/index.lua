-- index: the indexed form of a name, which is the form of many entries.
--
--   lock   hash   counts     <holds> <exclusive ones> <serial: counts grants and places>
--                 E:<id>     <serial> <record> of a hold or a waiter, or b for a buried id
--                 T:<owner>  the tokens of the owner's holds: <mode><token>=<number of ids> ...
--                 W:<owner>  the ids of the owner's waiters, in the order of the queue
--   order  zset   in three bands of scores
--                 q:<id>     the place of a waiter: -2^52 + serial, so its rank is its position
--                 h:<id>     the deadline of a hold in ms
--                 d:<id>     the deadline of a waiter or of a buried id: 2^50 + ms
--
-- Both keys expire with the last entry. Each function writes at once.

-- index_form returns the functions of list.lua for an indexed name. It makes them when it is called,
-- so that scripts that do not meet the form do not spend the time.
local function index_form(counts)
  local first_place, later = -4503599627370496, 1125899906842624
  local form, gone = {}, {}
  local count, exclusive, serial = string.match(counts, '^(%d+) (%d+) (%d+)$')
  count, exclusive, serial = tonumber(count), tonumber(exclusive), tonumber(serial)
  expect(serial and serial < 4503599627370000, 'a count')

  local function read(id, deadline)
    local text = call('HGET', name.lock, 'E:' .. id) or ''
    local number, from = string.match(text, '^(%d+) ()')
    local e = read_entry(id, deadline, text, expect(from, 'an entry'))
    e.serial = tonumber(number)
    return e
  end
  local function write(e)
    call('HSET', name.lock, 'E:' .. e.id, string.format('%.0f ', e.serial) .. cut(line_of(e), 48, -2))
    name.changed = true
  end

  local function write_list(field, list)
    if #list == 0 then return call('HDEL', name.lock, field) end
    call('HSET', name.lock, field, table.concat(list, ' '))
  end

  -- add changes the number of ids that have a token.
  local function add(e, by)
    local field, this, list = 'T:' .. e.owner, e.mode .. e.token, {}
    for token, number in string.gmatch(call('HGET', name.lock, field) or '', '(%a%d+)=(%d+)') do
      if token == this then
        by = by + number
      else
        list[#list + 1] = token .. '=' .. number
      end
    end
    if by > 0 then list[#list + 1] = this .. '=' .. by end
    write_list(field, list)
  end

  -- keep_lists takes the waiters that are gone off the lists of their owners, each list once.
  keep_lists = function()
    for owner, ids in pairs(gone) do
      local left = {}
      for id in string.gmatch(call('HGET', name.lock, 'W:' .. owner) or '', '%x+') do
        left[#left + 1] = not ids[id] and id or nil
      end
      write_list('W:' .. owner, left)
    end
    gone = {}
    if name.changed then
      call('HSET', name.lock, 'counts', string.format('%.0f %.0f %.0f', count, exclusive, serial))
    end
  end

  local function each_dead(band, f)
    local dead
    repeat
      dead = call('ZRANGE', name.order, band, string.format('(%.0f', band + name.now), 'BYSCORE', 'LIMIT', 0, 100)
      for _, member in ipairs(dead) do f(string.sub(member, 3)) end
    until #dead < 100
  end

  -- is_whole reports whether the keys agree on the number of holds.
  function form.is_whole() return call('ZCOUNT', name.order, 0, later - 1) == count end

  -- has_dead is forget_dead for scripts that write nothing. Lists are changed in memory alone.
  function form.has_dead()
    return call('ZCOUNT', name.order, 0, string.format('(%.0f', name.now)) > 0
      or call('ZCOUNT', name.order, later, string.format('(%.0f', later + name.now)) > 0
  end

  function form.forget_dead()
    local found = false
    each_dead(0, function(id)
      form.delete_hold(read(id, 0))
      found = true
    end)
    each_dead(later, function(id)
      if call('ZSCORE', name.order, 'q:' .. id) then
        form.delete_waiter(read(id, 0))
      else
        call('ZREM', name.order, 'd:' .. id)
        call('HDEL', name.lock, 'E:' .. id)
      end
      found, name.changed = true, true
    end)
    return found
  end

  function form.is_buried(id) return call('HGET', name.lock, 'E:' .. id) == 'b' end
  function form.hold_of(id)
    local deadline = call('ZSCORE', name.order, 'h:' .. id)
    return deadline and read(id, tonumber(deadline))
  end
  function form.waiter_of(id) return call('ZSCORE', name.order, 'q:' .. id) and read(id, 0) end
  function form.head()
    local id = string.match(call('ZRANGE', name.order, 0, 0)[1] or '', '^q:(.*)$')
    return id and read(id, 0)
  end
  function form.position(id) return (call('ZRANK', name.order, 'q:' .. id) or -1) + 1 end
  function form.numbers() return count, call('ZCOUNT', name.order, '-inf', '(0') end
  function form.has_writer() return exclusive > 0 end
  function form.last_hold()
    return tonumber(call('ZRANGE', name.order, later - 1, 0, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2] or 0)
  end

  function form.owned(owner)
    local number, greatest = 0, {}
    for mode, token, ids in string.gmatch(call('HGET', name.lock, 'T:' .. owner) or '', '(%a)(%d+)=(%d+)') do
      number = number + ids
      greatest[mode] = math.max(greatest[mode] or 0, tonumber(token))
    end
    return number, greatest.x, greatest.s
  end

  function form.waiters_of(owner)
    local found = {}
    for id in string.gmatch(call('HGET', name.lock, 'W:' .. owner) or '', '%x+') do
      local taken_off = gone[owner] and gone[owner][id]
      found[#found + 1] = not taken_off and form.waiter_of(id) or nil
    end
    return found
  end

  function form.put_hold(e)
    local before = e.serial and read(e.id, 0)
    if before then
      if before.token ~= e.token then
        add(before, -1)
        add(e, 1)
      end
    else
      count, serial = count + 1, serial + 1
      exclusive = exclusive + (e.mode == 'x' and 1 or 0)
      e.serial = serial
      add(e, 1)
    end
    write(e)
    call('ZADD', name.order, e.deadline, 'h:' .. e.id)
  end
  function form.put_waiter(e)
    if not e.serial then
      -- Its place may have died in this call: it must go off the list before it is appended.
      if gone[e.owner] and gone[e.owner][e.id] then keep_lists() end
      serial = serial + 1
      e.serial = serial
      call('ZADD', name.order, first_place + serial, 'q:' .. e.id)
      local others = call('HGET', name.lock, 'W:' .. e.owner)
      call('HSET', name.lock, 'W:' .. e.owner, others and others .. ' ' .. e.id or e.id)
    end
    write(e)
    call('ZADD', name.order, later + e.deadline, 'd:' .. e.id)
  end
  function form.delete_hold(e)
    call('ZREM', name.order, 'h:' .. e.id)
    call('HDEL', name.lock, 'E:' .. e.id)
    add(e, -1)
    count, name.changed = count - 1, true
    exclusive = exclusive - (e.mode == 'x' and 1 or 0)
  end
  -- A waiter that has become a hold keeps its record.
  function form.delete_waiter(e, granted)
    call('ZREM', name.order, 'q:' .. e.id, 'd:' .. e.id)
    if not granted then call('HDEL', name.lock, 'E:' .. e.id) end
    gone[e.owner] = gone[e.owner] or {}
    gone[e.owner][e.id] = true
    name.changed = true
  end
  function form.bury(id, deadline)
    call('HSET', name.lock, 'E:' .. id, 'b')
    call('ZADD', name.order, later + deadline, 'd:' .. id)
    name.changed = true
  end

  function form.entries()
    local holds, waits, buried, deadlines = {}, {}, {}, {}
    local members = call('ZRANGE', name.order, 0, -1, 'WITHSCORES')
    for i = 1, #members, 2 do
      local band, id = string.match(members[i], '^(.):(.*)$')
      local score = tonumber(members[i + 1])
      if band == 'h' and score >= name.now then
        holds[#holds + 1] = read(id, score)
      elseif band == 'q' then
        waits[#waits + 1], deadlines[id] = id, 0
      elseif band == 'd' and score - later >= name.now then
        if deadlines[id] then
          deadlines[id] = score - later
        else
          buried[#buried + 1] = {id = id, deadline = score - later}
        end
      end
    end
    table.sort(holds, function(one, other) return one.serial < other.serial end)
    local queue = {}
    for _, id in ipairs(waits) do
      queue[#queue + 1] = deadlines[id] > 0 and read(id, deadlines[id]) or nil
    end
    return holds, queue, buried
  end

  function form.save_index()
    keep_lists()
    local expiry = math.max(form.last_hold(), call('ZRANGE', name.order, -1, -1, 'WITHSCORES')[2] - later)
    call('PEXPIREAT', name.lock, expiry)
    call('PEXPIREAT', name.order, expiry)
  end

  -- save turns the name into another form when half of the limit is left. At the limit it would
  -- change its form with every request.
  function form.save()
    local number = count + call('ZCOUNT', name.order, later, '+inf')
    if number > limit / 2 and (number > 1 or count == 0) then return form.save_index() end
    keep_lists()
    local h, w, b = form.entries()
    local fields, all = {}, call('HGETALL', name.lock)
    for i = 1, #all, 2 do fields[#fields + 1] = all[i] end
    name.open_lists(read_lists(name.lock, 0))
    name.holds, name.waits = map(h, line_of), map(w, line_of)
    for _, e in ipairs(b) do list.bury(e.id, e.deadline) end
    list.save()
    if number > 0 then call('HDEL', name.lock, unpack(fields)) end
    call('DEL', name.order)
  end
  return form
end

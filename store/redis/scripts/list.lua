-- list: the listed form of a name, which is the form of up to a number of entries. Fields of the table
-- in name.lua.
--
-- The lock has two or three fields, and each is a list of lines that end with a newline:
--   holds    in the order of their grants
--   waits    the queue, its head first
--   buried   ids that are refused; absent if there is none
-- A line is   <id, 32 digits> <deadline in ms, 13 digits> <record>
-- The lock expires with its last entry.
--
-- The functions change the lists in memory, which save_lists writes at the end. If the name is indexed
-- those of index.lua take the place of the ones from has_dead to save.

  read_clock = function()
    name.time = call('TIME')
    name.now = name.time[1] * 1000 + math.floor(name.time[2] / 1000)
    name.digits = string.format('%013.0f', name.now)
  end,

  -- split makes lines of a text. What it does not check is checked when it is read.
  split = function(text)
    local lines, from = {}, 1
    local to = find_text(text, '\n', 1, true)
    while to do
      if byte(text, from + 32) ~= 32 or byte(text, from + 46) ~= 32 or to < from + 47 then
        foreign('a line')
      end
      lines[#lines + 1] = cut(text, from, to - 1)
      from = to + 1
      to = find_text(text, '\n', from, true)
    end
    if from <= #text then
      foreign('a line')
    end
    return lines
  end,

  join = function(lines)
    return #lines > 0 and table.concat(lines, '\n') .. '\n' or ''
  end,

  find = function(lines, id)
    for i = 1, #lines do
      if cut(lines[i], 1, 32) == id then
        return i
      end
    end
    return 0
  end,

  read_line = function(line)
    return line and name.read_record(cut(line, 1, 32), tonumber(cut(line, 34, 46)), line, 48)
  end,

  write_line = function(e)
    return e.id .. ' ' .. string.format('%013.0f', e.deadline) .. ' ' .. name.write_record(e)
  end,

  -- latest_of returns the last deadline of a list, or what it is compared with, as text.
  latest_of = function(lines, latest)
    for i = 1, #lines do
      local deadline = cut(lines[i], 34, 46)
      if deadline > latest then
        latest = deadline
      end
    end
    return latest
  end,

  put = function(lines, e)
    local i = name.find(lines, e.id)
    lines[i > 0 and i or #lines + 1] = name.write_line(e)
    name.changed = true
  end,

  -- alive returns the lines without the dead ones.
  alive = function(lines)
    for i = 1, #lines do
      if cut(lines[i], 34, 46) < name.digits then
        local left = {}
        for k = 1, #lines do
          if cut(lines[k], 34, 46) >= name.digits then
            left[#left + 1] = lines[k]
          end
        end
        return left
      end
    end
    return lines
  end,

  -- save_lists writes the lists as the new state of the name. New fields are written before old ones
  -- are deleted: while its slot moves to another node, a lock that has vanished could not be written
  -- again.
  save_lists = function()
    local number = #name.holds + #name.waits + #name.buried
    if number == 0 then
      call('DEL', name.lock)
      return
    end
    local expiry = name.latest_of(name.holds, name.latest_of(name.waits, name.latest_of(name.buried, name.digits)))
    if not tonumber(expiry) then
      foreign('a deadline')
    end
    local listed = name.was_holds
    if number == 1 and #name.holds == 1 then
      local e = name.read_line(name.holds[1])
      call('HSET', name.lock, 'L:' .. e.id, name.write_record(e))
      if listed then
        call('HDEL', name.lock, 'holds', 'waits', 'buried')
      elseif name.was_lone and name.was_lone ~= e.id then
        call('HDEL', name.lock, 'L:' .. name.was_lone)
      end
    else
      local h, w, b = name.join(name.holds), name.join(name.waits), name.join(name.buried)
      if h == name.was_holds then
        call('HSET', name.lock, 'waits', w)
      elseif w == name.was_waits then
        call('HSET', name.lock, 'holds', h)
      else
        call('HSET', name.lock, 'holds', h, 'waits', w)
      end
      if #name.buried > 0 and b ~= name.was_buried then
        call('HSET', name.lock, 'buried', b)
      elseif #name.buried == 0 and name.was_buried then
        call('HDEL', name.lock, 'buried')
      end
      if name.was_lone then
        call('HDEL', name.lock, 'L:' .. name.was_lone)
      end
    end
    call('PEXPIREAT', name.lock, expiry)
  end,

  -- has_dead looks for dead entries and changes nothing.
  has_dead = function()
    return name.alive(name.holds) ~= name.holds or name.alive(name.waits) ~= name.waits or name.alive(name.buried) ~= name.buried
  end,

  -- forget_dead deletes dead entries and reports whether there were any.
  forget_dead = function()
    local h, w, b = name.alive(name.holds), name.alive(name.waits), name.alive(name.buried)
    if h ~= name.holds or w ~= name.waits or b ~= name.buried then
      name.holds, name.waits, name.buried, name.changed = h, w, b, true
      return true
    end
  end,

  is_buried = function(id)
    return #name.buried > 0 and name.find(name.buried, id) > 0
  end,

  hold_of = function(id)
    return name.read_line(name.holds[name.find(name.holds, id)])
  end,

  waiter_of = function(id)
    return name.read_line(name.waits[name.find(name.waits, id)])
  end,

  -- head returns the first waiter.
  head = function()
    return name.read_line(name.waits[1])
  end,

  -- position returns the place of a waiter in the queue, or 0.
  position = function(id)
    return name.find(name.waits, id)
  end,

  -- numbers returns the number of holds and of waiters.
  numbers = function()
    return #name.holds, #name.waits
  end,

  -- owned returns how many holds an owner has, and its greatest exclusive and shared tokens.
  owned = function(owner)
    local number, infix, x, s = 0, ' ' .. owner .. ' ', nil, nil
    for i = 1, #name.holds do
      local e = find_text(name.holds[i], infix, 48, true) and name.read_line(name.holds[i])
      if e and e.owner == owner then
        number = number + 1
        if e.mode == 'x' then
          x = math.max(x or 0, tonumber(e.token))
        else
          s = math.max(s or 0, tonumber(e.token))
        end
      end
    end
    return number, x, s
  end,

  -- has_writer reports whether a hold is exclusive.
  has_writer = function()
    for i = 1, #name.holds do
      if find_text(name.holds[i], '^%d+ x ', 48) then
        return true
      end
    end
  end,

  -- last_hold returns the last deadline of a hold, and the label of one hold.
  last_hold = function()
    return tonumber(name.latest_of(name.holds, '0')), #name.holds > 0 and name.read_line(name.holds[1]).rest or ''
  end,

  -- waiters_of returns the waiters of an owner, in the order of the queue.
  waiters_of = function(owner)
    local found, infix = {}, ' ' .. owner .. ' '
    for i = 1, #name.waits do
      local e = find_text(name.waits[i], infix, 48, true) and name.read_line(name.waits[i])
      if e and e.owner == owner then
        found[#found + 1] = e
      end
    end
    return found
  end,

  put_hold = function(e)
    name.put(name.holds, e)
  end,

  put_waiter = function(e)
    name.put(name.waits, e)
  end,

  bury = function(id, deadline)
    name.put(name.buried, name.buried_entry(id, deadline))
  end,

  -- lists returns the lines of holds, waiters and buried ids.
  lists = function()
    return name.holds, name.waits, name.buried
  end,

  save = function()
    local number = #name.holds + #name.waits + #name.buried
    if number <= limit or number == 1 and #name.holds == 1 then
      name.save_lists()
    else
      name.index_lists()
    end
  end,

  delete_hold = function(e)
    table.remove(name.holds, name.find(name.holds, e.id))
    name.changed = true
  end,

  -- delete_waiter deletes the place of a waiter, which may be a hold by now.
  delete_waiter = function(e, granted)
    table.remove(name.waits, name.find(name.waits, e.id))
    name.changed = true
  end,

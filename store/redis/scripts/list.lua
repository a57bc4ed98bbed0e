-- list: the listed form of a name, which is the form of up to a number of entries; see record.lua. It
-- changes lists in memory, and save writes them. If the name is indexed those of index.lua take the
-- place of its functions.

-- An entry is a record with its id and its deadline in ms: {id, deadline, token, mode, owner, rest}.
local function read_entry(id, deadline, text, n)
  local e = {id = id, deadline = expect(deadline, 'a deadline')}
  e.token, e.mode, e.owner, e.rest = read_record(text, n)
  return e
end

local function read_line(line)
  return line and read_entry(cut(line, 1, 32), tonumber(cut(line, 34, 46)), line, 48)
end

local function line_of(e)
  return write_line(e.id, string.format('%013.0f', e.deadline), e.token, e.mode, e.owner, e.rest)
end

local function map(list, f)
  local all = {}
  for i = 1, #list do all[i] = f(list[i]) end
  return all
end

-- split makes lines of a text.
local function split(text)
  local lines, from = {}, 1
  while from <= #text do
    local to = find_text(text, '\n', from, true)
    expect(to and to > from + 46 and byte(text, from + 32) == 32 and byte(text, from + 46) == 32
      and find_text(text, '^%d+ %d+ [xs] ', from + 33), 'a line')
    lines[#lines + 1] = cut(text, from, to)
    from = to + 1
  end
  return lines
end

local function find(lines, id)
  for i = 1, #lines do
    if cut(lines[i], 1, 32) == id then return i end
  end
  return 0
end

local function put(lines, e)
  local i = find(lines, e.id)
  lines[i > 0 and i or #lines + 1] = line_of(e)
  name.changed = true
end

local function remove(lines, e)
  table.remove(lines, find(lines, e.id))
  name.changed = true
end

-- alive returns the lines that are not dead: if that is all, the same table.
local function alive(lines)
  local left = {}
  for i = 1, #lines do
    if cut(lines[i], 34, 46) >= name.digits then left[#left + 1] = lines[i] end
  end
  return #left < #lines and left or lines
end

local function entries_of(lines, owner)
  local found, infix = {}, ' ' .. owner .. ' '
  for i = 1, #lines do
    local e = find_text(lines[i], infix, 48, true) and read_line(lines[i])
    if e and e.owner == owner then found[#found + 1] = e end
  end
  return found
end

local list = {
  -- forget_dead deletes dead entries and reports whether there were any.
  forget_dead = function()
    local before = #name.holds + #name.waits + #name.buried
    name.holds, name.waits, name.buried = alive(name.holds), alive(name.waits), alive(name.buried)
    local found = #name.holds + #name.waits + #name.buried < before
    name.changed = name.changed or found
    return found
  end,

  is_buried = function(id) return find(name.buried, id) > 0 end,
  hold_of = function(id) return read_line(name.holds[find(name.holds, id)]) end,
  waiter_of = function(id) return read_line(name.waits[find(name.waits, id)]) end,
  head = function() return read_line(name.waits[1]) end,
  position = function(id) return find(name.waits, id) end, -- in the queue; 0 is none
  numbers = function() return #name.holds, #name.waits end,

  -- owned returns how many holds an owner has, and its greatest exclusive and shared tokens.
  owned = function(owner)
    local own, greatest = entries_of(name.holds, owner), {}
    for _, e in ipairs(own) do
      greatest[e.mode] = math.max(greatest[e.mode] or 0, tonumber(e.token))
    end
    return #own, greatest.x, greatest.s
  end,

  -- has_writer reports whether a hold is exclusive.
  has_writer = function() return find_text('\n' .. table.concat(name.holds), '\n%x+ %d+ %d+ x ') end,

  -- last_hold returns the last deadline of a hold, and the label and the token of one hold.
  last_hold = function()
    local _, latest = scan(table.concat(name.holds), 1, '', '0')
    local e = #name.holds > 0 and read_line(name.holds[1]) or {}
    return tonumber(latest), e.rest, e.token
  end,

  -- waiters_of returns the waiters of an owner, in the order of the queue.
  waiters_of = function(owner) return entries_of(name.waits, owner) end,

  -- entries returns the live holds in the order of their grants, waiters, and buried ids.
  entries = function()
    return map(name.holds, read_line), map(name.waits, read_line), map(name.buried, read_line)
  end,

  put_hold = function(e) put(name.holds, e) end,
  put_waiter = function(e) put(name.waits, e) end,
  delete_hold = function(e) remove(name.holds, e) end,

  -- delete_waiter deletes the place of a waiter, which is a hold by now if it is granted.
  delete_waiter = function(e, granted) remove(name.waits, e) end,

  -- A buried id has the form of a hold, so that all lines are read alike.
  bury = function(id, deadline)
    put(name.buried, {id = id, deadline = deadline, token = '0', mode = 'x', owner = '-', rest = ''})
  end,

  save = function()
    local number = #name.holds + #name.waits + #name.buried
    if number == 0 then
      call('DEL', name.lock)
    elseif number <= limit or number == 1 and #name.holds == 1 then
      local h, w, b = table.concat(name.holds), table.concat(name.waits), table.concat(name.buried)
      local _, latest = scan(h .. w .. b, 1, '', name.digits)
      save_lists(name.lock, name.was, h, w, b, latest)
    else
      name.index_lists()
    end
  end,
}

-- life: the life of the data, and for how long it has lasted as clients saw it.
--
-- KEYS  1 life
-- ARGV  1 run: the server's process and what it replicates; 2 an id; 3 ms for which the caller has seen
--       the life with that id
--
-- Returns <run> <id> <ms>: the life that goes on. The key is lost with the data. If it is lost, or
-- another run wrote it, a new life begins, with the id of the caller.

local text = redis.call('GET', KEYS[1]) or ''
local run, id, ms = string.match(text, '^(%S+) (%x+) (%d+)$')
if run == ARGV[1] and (id ~= ARGV[2] or tonumber(ARGV[3]) <= tonumber(ms)) then
  return text
end
text = ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. (run == ARGV[1] and ARGV[3] or '0')
redis.call('SET', KEYS[1], text)
return text

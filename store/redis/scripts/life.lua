-- life: the life of the data, and for how long it has lasted as clients saw it.
--
-- KEYS  1 life
-- ARGV  1 run: the server's process and what it replicates; 2 an id; 3 ms for which the caller has seen
--       the life with that id, 0 to begin it
--
-- Returns <run> <id> <ms>: the life that goes on, or '' if there is none. The key is lost with the data. A
-- life begins if the key is lost or another run wrote it. One that a caller has seen never begins again.

local text = redis.call('GET', KEYS[1]) or ''
local run, id, ms = string.match(text, '^(%S+) (%x+) (%d+)$')
local begins = ARGV[3] == '0' and run ~= ARGV[1]
if begins or run == ARGV[1] and id == ARGV[2] and tonumber(ARGV[3]) > tonumber(ms) then
  text = table.concat(ARGV, ' ')
  redis.call('SET', KEYS[1], text)
end
return text

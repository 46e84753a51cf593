-- mark: reads or replaces the mark of a name.
--
-- KEYS  1 the hash of the mark  2 none, in a cluster
-- ARGV  nothing to read it, or  1 token, of 20 digits  2 value  3 milliseconds to keep it
-- Answers {token, value}, {} when there is none, 1 when it is replaced, 3 when its
-- token is greater, or {-1} when the key is not ours.

local call = redis.call
local k, token = KEYS[1], ARGV[1]
local there = call('HMGET', k, 'token', 'value')
local known = there[1] and there[2] and string.match(there[1], '^%d+$') and #there[1] == 20
if not known and call('EXISTS', k) == 1 then return { -1 } end
if not token then return known and there or {} end
-- Texts of 20 digits are in the order of their numbers; a number of Lua has 53 bits.
if known and there[1] > token then return 3 end
-- Without the right to PEXPIRE, the script ends here, before there is a mark that
-- would never expire.
call('PEXPIRE', k, ARGV[3])
call('HSET', k, 'token', token, 'value', ARGV[2])
call('PEXPIRE', k, ARGV[3])
return 1

-- renew: many tickets in one call.
--
-- KEYS  the holders' keys of the tickets that probably hold a mutex, then the four
--       keys of each of the others, the mark, the tokens ahead of it, and in
--       a cluster none
-- ARGV  how many there are of the first kind, then for each its id and the
--       milliseconds to keep it
-- Answers for each the token of one that holds, the answer of join for one that
-- waits, {3} for one that is gone, 0 for one of the first kind that does not
-- hold, or the text of an error.

local call = redis.call
local out, fast = {}, tonumber(ARGV[1])

for i = 1, fast do
	local id = ARGV[2 * i]
	local v = redis.pcall('HMGET', KEYS[i], id, '\1' .. id)
	if v.err then
		out[i] = v.err
	elseif v[1] and v[2] then
		call('PEXPIRE', KEYS[i], ARGV[2 * i + 1])
		out[i] = tonumber(string.match(v[2], '^%d+')) or 0
	else
		out[i] = 0
	end
end
if not ARGV[2 * fast + 2] then return out end

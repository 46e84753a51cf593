-- leave, first half: an ordinary mutex for which nobody waits, or the next in
-- line is an ordinary ticket. Everything else falls through.
--
-- KEYS  1 line  2 queue  3 due  4 tickets  5 token
-- ARGV  1 id  2 "1" when it is an ordinary mutex  3 "1" to remember that it is gone
-- Answers 2 for a ticket that held, 1 for one that waited, 3 for none.

local call = redis.call
local n = 0

if ARGV[2] == '1' then
	-- All that could fail comes before the release, which comes before the rest.
	local id = not ARGV[3] and call('LINDEX', KEYS[2], 0)
	local expiry = id and '\2' .. id
	local v = id and call('HMGET', KEYS[4], id, expiry)
	local last = id and tonumber(call('GET', KEYS[5]) or 0)
	n = call('HDEL', KEYS[1], ARGV[1], '\1' .. ARGV[1])
	if n > 0 and not id and not ARGV[3] then return 2 end
	if n > 0 and last and last < 4503599627370496 and v[1] and v[2] and string.sub(v[1], 1, 5) == '1m\n0\n' then
		local time = call('TIME')
		local us = time[1] * 1000000 + time[2]
		local left = v[2] - us / 1000
		if left >= 1 then
			local clock = (us - 1735689600000000) / 25
			local token, linger = clock - clock % 1, '3600000'
			if token <= last or token < 1 then
				token = last + 1
				linger = string.format('%.0f', 3600000 + (token - clock) / 40 + 1)
			end
			local text = string.format('%.0f', token)
			local channel = string.sub(v[1], 6, string.find(v[1], '\n', 6, true) - 1)
			-- Who has no channel asks.
			local heard = channel == '' and 1 or redis.pcall('PUBLISH', channel, 'held ' .. text .. ' ' .. id)
			if type(heard) == 'number' and heard > 0 then
				call('HSET', KEYS[1], id, '1', '\1' .. id, text .. string.sub(v[1], 5))
				call('PEXPIRE', KEYS[1], left - left % 1)
				call('HDEL', KEYS[4], id, expiry)
				call('LPOP', KEYS[2])
				call('SET', KEYS[5], text, 'PX', linger)
				return 2
			end
		end
	end
end

-- leave, first half: an ordinary mutex without waiters, or whose next waiter is
-- an ordinary ticket, and the only ticket of any other queue. Every other leave
-- goes on to the second half.
--
-- KEYS  1 holders  2 waiters  3 due  4 tickets  5 mark  6 ahead  7 none, in a cluster
-- ARGV  1 id  2 "1" when it is an ordinary mutex  3 "1" to remember that it is gone
-- Answers 2 for a ticket that held, 1 for one that waited, 3 for none.

local call = redis.call
local released = false

if ARGV[2] == '1' and not ARGV[3] and call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
	-- All commands that could fail come before the release. A command refused
	-- after it is left to the waiters' own requests: the answer is that the
	-- ticket was released.
	local id = call('LINDEX', KEYS[2], 0)
	local expiry = id and '\2' .. id
	local v = id and call('HMGET', KEYS[4], id, expiry)
	local last = id and tonumber(call('ZSCORE', KEYS[6], KEYS[1]) or 0)
	local mark = id and tonumber(call('GET', KEYS[5]) or 0)
	local time = id and call('TIME')
	call('DEL', KEYS[1])
	if not id then return 2 end
	released = true
	if mark and last < 4503599627370496 and mark < 4503599627370496 and v[1] and v[2] and string.sub(v[1], 1, 5) == '1m\n0\n' then
		local try = redis.pcall
		local us = time[1] * 1000000 + time[2]
		local left = v[2] - us / 1000
		local clock = (us - 1735689600000000) / 25
		local token = clock - clock % 1
		if token <= mark then token = mark + 1 end
		if left >= 1 and token > last then
			local text = string.format('%.0f', token)
			local channel = string.sub(v[1], 6, string.find(v[1], '\n', 6, true) - 1)
			local holds = try('HSET', KEYS[1], id, '1', '\1' .. id, text .. string.sub(v[1], 5), 'mode', 'holdfast')
			if type(holds) == 'number' and try('PEXPIRE', KEYS[1], left - left % 1) == 1 and not try('SET', KEYS[5], text).err then
				-- A ticket without a channel polls.
				local listeners = channel == '' and 1 or redis.pcall('PUBLISH', channel, 'held ' .. text .. ' ' .. id)
				if type(listeners) == 'number' and listeners > 0 then
					try('HDEL', KEYS[4], id, expiry)
					try('LPOP', KEYS[2])
					return 2
				end
			end
			try('DEL', KEYS[1]) -- no client was notified of it
		end
	end
end

if ARGV[2] ~= '1' and not ARGV[3] then
	local v = call('HMGET', KEYS[4], ARGV[1], '\2' .. ARGV[1])
	local units, owner = string.match(v[1] or '', '^1h\n%d+\n(%d+)\n%d+\n([^\n]*)\n')
	-- T has the ticket, its time, and the place of an owner; K the place, the limit,
	-- the units of all places, and the mode.
	if units and owner ~= 'mode' and call('HLEN', KEYS[4]) == (owner == '' and 2 or 3) and call('HLEN', KEYS[1]) == 4
		and call('EXISTS', KEYS[2]) == 0 and #call('ZRANGE', KEYS[3], 0, 1) == 1 then
		local place = call('HMGET', KEYS[1], owner == '' and ARGV[1] or owner, '\1u')
		local time = call('TIME')
		if place[1] and place[2] == units and tonumber(v[2] or 0) > time[1] * 1000 + time[2] / 1000 then
			call('DEL', KEYS[1], KEYS[3], KEYS[4])
			return 2
		end
	end
end

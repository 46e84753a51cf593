-- join, first half: an ordinary mutex that is free, or that an ordinary ticket
-- holds. That is most joins, so it does without the functions of line.lua, to
-- define which takes longer than all of this. Everything else falls through.
--
-- KEYS  1 line  2 queue  3 due  4 tickets  5 token
-- ARGV  1 id  2 milliseconds to keep it  3 channel  4 metadata  5 "1" to wait
--       6 floor, or nothing
--       only when it is no ordinary mutex, or replaces a ticket:
--       7 limit  8 units  9 owner  10 id of the ticket it replaces
-- Answers the token, or what join.lua says.

local call = redis.call
local id, floor = ARGV[1], tonumber(ARGV[6] or 0)
local there = not ARGV[7] and floor <= 4503599627370496 and call('EXISTS', KEYS[1], KEYS[2], KEYS[3])

if there == 0 then
	local last = tonumber(call('GET', KEYS[5]) or 0)
	local time = call('TIME')
	local clock = (time[1] * 1000000 + time[2] - 1735689600000000) / 25
	-- A counter that is not a number, or at its end, is left to join.lua.
	if last and last < 4503599627370496 then
		if last < floor then last = floor - 1 end
		local token, linger = clock - clock % 1, '3600000'
		if token <= last or token < 1 then
			token = last + 1
			linger = string.format('%.0f', 3600000 + (token - clock) / 40 + 1)
		end
		local text = string.format('%.0f', token)
		-- Where memory is short the first write is refused, and nothing is done.
		call('HSET', KEYS[1], id, '1', '\1' .. id, text .. '\n' .. ARGV[3] .. '\n' .. ARGV[4])
		call('PEXPIRE', KEYS[1], ARGV[2])
		call('SET', KEYS[5], text, 'PX', linger)
		return token
	end
elseif there then
	-- Of two fields this gives both; a hash with more is for join.lua.
	local v = call('HRANDFIELD', KEYS[1], 3, 'WITHVALUES') or {} -- 6.2 says nil for no hash
	local holder, mark, record = v[1], v[3], v[4]
	if mark and string.byte(holder) == 1 then holder, mark, record = v[3], v[1], v[2] end
	-- With the line alone there is neither queue nor tombstone nor any ticket.
	if mark and not v[5] and mark == '\1' .. holder and holder ~= id and string.find(record, '^%d+\n') then
		local before = there > 1 and call('LINDEX', KEYS[2], -1)
		local known = there > 1 and call('HMGET', KEYS[4], id, '\2' .. (before or '')) or {}
		if not known[1] and ARGV[5] ~= '1' then return { 3, record, 1 } end
		local time = call('TIME')
		local now = time[1] * 1000 + time[2] / 1000
		now = now - now % 1
		local left = before and tonumber(known[2] or 0) - now or not before and call('PTTL', KEYS[1])
		-- A ticket that has a place, and one behind a named owner or one whose
		-- time is over, are for join.lua.
		if not known[1] and (not before or left > 0) then
			call('HSET', KEYS[4], id, '1m\n' .. (ARGV[6] or '0') .. '\n' .. ARGV[3] .. '\n' .. ARGV[4], '\2' .. id, now + ARGV[2])
			local length = call('RPUSH', KEYS[2], id)
			if there == 1 then
				call('PEXPIRE', KEYS[2], ARGV[2])
				call('PEXPIRE', KEYS[4], ARGV[2])
			elseif call('PTTL', KEYS[2]) < ARGV[2] + 0 then
				call('PEXPIRE', KEYS[2], 2 * ARGV[2])
				if call('PTTL', KEYS[4]) < 2 * ARGV[2] then call('PEXPIRE', KEYS[4], 2 * ARGV[2]) end
			end
			return { 1, length, left < 0 and 0 or left + 1, record, 1 }
		end
	end
end

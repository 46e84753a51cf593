-- join, first half: an ordinary mutex that is free, or that an ordinary ticket
-- holds, and any other lock of which nothing is stored. Most joins are like this,
-- so this half does without the functions of queue.lua: to define them takes
-- longer than all of this. Every other join goes on to the second half.
--
-- KEYS  1 holders  2 waiters  3 due  4 tickets  5 mark  6 ahead  7 none, in a cluster
-- ARGV  1 id  2 milliseconds to keep it  3 channel  4 metadata  5 "1" to wait
--       6 minimum token, or nothing
--       only when it is no ordinary mutex, or replaces a ticket:
--       7 limit  8 units  9 owner  10 id of the ticket it replaces
-- Answers the token, or what join.lua says.

local call = redis.call
local id, min_token = ARGV[1], tonumber(ARGV[6] or 0)
local plain, there = not ARGV[7], nil
if plain then
	there = min_token <= 4503599627370496 and call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
elseif min_token <= 4503599627370496 and ARGV[9] ~= 'mode' and ARGV[10] == '' and ARGV[8] + 0 <= ARGV[7] + 0 and call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4]) == 0 then
	there = 0
end

local v -- all of three fields of the holders; a hash with more is left to join.lua
if there and there > 0 then v = call('HRANDFIELD', KEYS[1], 4, 'WITHVALUES') or {} end -- 6.2 says nil for no hash

-- Tombstones alone refuse no ticket but their own.
if there == 1 and not v[1] and call('EXISTS', KEYS[2]) == 0 and call('HGET', KEYS[4], id) ~= '1x' then there = 0 end

if there == 0 then
	local last, mark = tonumber(call('ZSCORE', KEYS[6], KEYS[1]) or 0), tonumber(call('GET', KEYS[5]) or 0)
	local time = call('TIME')
	local clock = (time[1] * 1000000 + time[2] - 1735689600000000) / 25
	-- A counter that is no number, or at its end, is left to join.lua.
	if mark and last < 4503599627370496 and mark < 4503599627370496 then
		local token = clock - clock % 1
		local high = token
		if token <= mark then token, high = mark + 1, mark end
		-- If memory is short, the first write is refused, and nothing is done.
		local text
		if token > last and token >= min_token then
			text = string.format('%.0f', token)
			call('SET', KEYS[5], text)
		else
			token = last < min_token and min_token or last + 1
			text = string.format('%.0f', token)
			call('ZADD', KEYS[6], text, KEYS[1])
			high = string.format('%.0f', high)
			call('SET', KEYS[5], high)
			local over = call('ZRANGEBYSCORE', KEYS[6], '-inf', high, 'LIMIT', 0, 8)
			if over[1] then call('ZREM', KEYS[6], unpack(over)) end
		end
		-- The first PEXPIRE has no effect: without the right to it, the script
		-- ends here, before there is a hold that would never expire.
		call('PEXPIRE', KEYS[1], ARGV[2])
		if not plain then
			local units, owner, keep = ARGV[8], ARGV[9], 2 * ARGV[2]
			local ms = time[1] * 1000 + time[2] / 1000 + ARGV[2]
			local due = string.format('%.0f', ms - ms % 1)
			call('ZADD', KEYS[3], due, id)
			call('PEXPIRE', KEYS[3], keep)
			call('HSET', KEYS[4], id, table.concat({ '1h', ARGV[7], units, text, owner, ARGV[3], ARGV[4] }, '\n'), '\2' .. id, due)
			call('PEXPIRE', KEYS[4], keep)
			if owner ~= '' then call('HSET', KEYS[4], '\1' .. owner, id) end
			call('HSET', KEYS[1], owner == '' and id or owner, ARGV[7] == '1' and '1' or units, '\1l', ARGV[7], '\1u', units, 'mode', 'holdfast')
			call('PEXPIRE', KEYS[1], ARGV[2])
			return token
		end
		call('HSET', KEYS[1], id, '1', '\1' .. id, text .. '\n' .. ARGV[3] .. '\n' .. ARGV[4], 'mode', 'holdfast')
		call('PEXPIRE', KEYS[1], ARGV[2])
		return token
	end
elseif there then
	local holder, mark, record, mode
	for i = 1, #v, 2 do
		if v[i] == 'mode' then
			mode = v[i + 1]
		elseif string.byte(v[i]) == 1 then
			mark, record = v[i], v[i + 1]
		else
			holder = v[i]
		end
	end
	-- If only the holders' key exists, there is no waiter, no tombstone and no
	-- other ticket.
	if holder and mark and not v[7] and mark == '\1' .. holder and (mode or 'holdfast') == 'holdfast' and holder ~= id and string.find(record, '^%d+\n') then
		local before = there > 1 and call('LINDEX', KEYS[2], -1)
		local known = there > 1 and call('HMGET', KEYS[4], id, '\2' .. (before or '')) or {}
		if not known[1] and ARGV[5] ~= '1' then return { 3, record, 1, call('PTTL', KEYS[1]) } end
		local time = call('TIME')
		local now = time[1] * 1000 + time[2] / 1000
		now = now - now % 1
		local left = before and tonumber(known[2] or 0) - now or not before and call('PTTL', KEYS[1])
		-- A ticket that has a place is left to join.lua, and so is one behind a
		-- named owner or behind an expired ticket.
		if not known[1] and (not before or left > 0) then
			-- If memory is short, the first write is refused. Without the right to
			-- set its expiry the list is taken back, and nothing was done.
			local queue, tickets, keep = -2, -2, there > 1 and 2 * ARGV[2] or ARGV[2] + 0
			if before then
				queue, tickets = call('PTTL', KEYS[2]), call('PTTL', KEYS[4])
			elseif there > 1 then
				tickets = call('PTTL', KEYS[4])
			end
			local length = call('RPUSH', KEYS[2], id)
			if queue < ARGV[2] + 0 then
				local kept = redis.pcall('PEXPIRE', KEYS[2], keep)
				if type(kept) ~= 'number' then
					call('LREM', KEYS[2], -1, id)
					return kept
				end
			end
			call('HSET', KEYS[4], id, '1m\n' .. (ARGV[6] or '0') .. '\n' .. ARGV[3] .. '\n' .. ARGV[4], '\2' .. id, now + ARGV[2])
			if queue < ARGV[2] + 0 and tickets < keep then call('PEXPIRE', KEYS[4], keep) end
			return { 1, length, left < 0 and 0 or left + 1, record, 1 }
		end
	end
end

-- Tokens, grants and the answers about a place: the second half of the steps
-- that queue.lua begins.

-- next_token returns the token of a grant, which save_token keeps.
local function next_token(min_token)
	if not last then
		last, mark = tonumber(call('ZSCORE', A, K) or 0), tonumber(call('GET', M) or 0) or bad()
	end
	local token = math.max(last + 1, mark + 1, math.floor((us - 1735689600000000) / 25), min_token)
	if token <= MAX_TOKEN then return token end
	spent = true
end

-- save_token stores a token that the clock or the mark gave as the mark, which
-- never expires: all later grants of the server, or slot, are above it. A token
-- that is ahead for this queue alone is stored under the queue's key until the
-- mark has passed it, however long that takes: a clock that is set back does
-- not lower it.
local function save_token(token)
	local clock = math.floor((us - 1735689600000000) / 25)
	if token == math.max(mark + 1, clock) then
		mark = token
		call('SET', M, num(token))
	else
		last = token
		call('ZADD', A, num(token), K)
		mark = math.max(mark, clock)
		call('SET', M, num(mark))
		local over = call('ZRANGEBYSCORE', A, '-inf', num(mark), 'LIMIT', 0, 8)
		if over[1] then call('ZREM', A, unpack(over)) end
	end
end

-- hold_plain makes an unnamed ticket the holder of a mutex.
local function hold_plain(id, t, ms)
	call('HSET', K, id, '1', '\1' .. id, num(t.token) .. '\n' .. t.channel .. '\n' .. t.meta, 'mode', 'holdfast')
	call('PEXPIRE', K, num(ms))
	limit, used, plain = 1, 1, { id = id, token = t.token, channel = t.channel, meta = t.meta }
end

-- hold counts a place of another kind among the holders.
local function hold(id, count, t, ms)
	limit, used = t.limit, used + t.units
	call('HSET', K, field(id, t), num(count), '\1l', num(limit), '\1u', num(used), 'mode', 'holdfast')
	keep_for(K, ms)
end

-- notify publishes to a ticket's channel and returns the number of listeners. A
-- channel to which this user may not publish counts as one without listeners. A
-- ticket without a channel polls, and so counts as notified.
local function notify(channel, message)
	if channel == '' then return 1 end
	local n = redis.pcall('PUBLISH', channel, message)
	return type(n) == 'number' and n or 0
end

-- grant makes the place p a holder if one of its tickets, which all wait, has a
-- listener. requester is the ticket whose request this is: it learns of the
-- grant by the answer.
local function grant(p, ids, tickets, requester)
	local min_token, ends = 0, 0
	for _, t in ipairs(tickets) do
		min_token = math.max(min_token, t.token)
		ends = math.max(ends, t.due)
	end
	local token = next_token(min_token)
	if not token then return false end
	touch()
	-- A write that may be refused comes before any push; this one stores what
	-- is there already.
	call('HSET', T, '\2' .. ids[1], num(tickets[1].due))
	save_token(token)
	local listeners = 0
	for i, id in ipairs(ids) do
		if id == requester then
			listeners = listeners + 1
		else
			listeners = listeners + notify(tickets[i].channel, 'held ' .. num(token) .. ' ' .. id)
		end
	end
	if listeners == 0 then return false end
	local t = tickets[1]
	if p == ids[1] and t.limit == 1 then
		call('HDEL', T, p, '\2' .. p)
		t.token = token
		hold_plain(p, t, ends - now)
	else
		for i, id in ipairs(ids) do
			tickets[i].held, tickets[i].token = true, token
			store(id, tickets[i])
		end
		hold(ids[1], t.limit == 1 and #ids or t.units, t, ends - now)
		extend_helpers(ends - now)
	end
	return true
end

-- more tells whether this request may still drop waiters and grant.
local function more() return steps < MAX_STEPS and drops < MAX_DROPS end

-- live_members drops the expired tickets of a place and returns the others.
-- When it may drop no more, it leaves the place as it is.
local function live_members(p, from)
	local ids, tickets, before = {}, {}, drops
	for _, id in ipairs(members(p)) do
		local t = ticket(id)
		if t and not t.held and t.due > now then
			ids[#ids + 1], tickets[#ids + 1] = id, t
		elseif drops >= MAX_DROPS then
			return nil
		elseif t and not t.held then
			drops = drops + 1
			remove(id, t, from)
		end
	end
	if #ids == 0 and drops == before then -- T does not have it at all
		drops = drops + 1
		touch()
		call('LREM', Q, from or 1, p)
	end
	return ids, tickets
end

-- advance drops expired tickets and grants in order, up to the first place that
-- does not fit. A place whose client does not listen keeps its place and is
-- passed over: a grant must reach its client. After a sweep of the same request,
-- swept saves another one.
local function advance(requester, swept)
	clear = false
	if not swept then sweep() end
	local i = 0
	while not idle and more() and not (limit and used >= limit) do
		local p = call('LINDEX', Q, i)
		if not p then break end
		local ids, tickets = live_members(p)
		if not ids then return end
		if #ids > 0 then
			local t = tickets[1]
			limit = t.limit
			if used + t.units > limit or not more() then return end
			steps = steps + 1
			if grant(p, ids, tickets, requester) then
				if i == 0 then call('LPOP', Q) else call('LREM', Q, 1, p) end
			else
				if spent then return end
				i = i + 1
			end
		end
	end
	clear = more()
	if used == 0 and i == 0 and clear then limit = nil end
end

-- holder returns the metadata of a holder, and the time at which that hold ends
-- unless it ends with K.
local function holder()
	if plain then return plain.meta end
	if used == 0 then return '' end
	for _, name in ipairs(call('HRANDFIELD', K, 4)) do -- three fields are no owner's
		if string.byte(name) ~= 1 and name ~= 'mode' then
			local t = ticket(name)
			if t then return t.meta, t.due end
			t = ticket(members('\1' .. name)[1] or '')
			if t then return t.meta, due('\1' .. name) end
		end
	end
	return ''
end

-- gone returns the answer about a ticket that must not wait.
local function gone()
	local meta, at = holder()
	if plain then at = now + call('PTTL', K) end
	return { 3, meta, 0, at and math.max(at - now, 0) or 0 }
end

-- waiting returns the answer about the place at this index of Q, after it has
-- dropped the expired places directly before.
local function waiting(index)
	while index > 0 and drops < MAX_DROPS do
		local ids = live_members(call('LINDEX', Q, index - 1), -1)
		if not ids or #ids > 0 then break end
		index = index - 1
	end
	local ahead, at = index, nil
	if used > 0 then ahead = ahead + (plain and 1 or call('HLEN', K) - 2 - call('HEXISTS', K, 'mode')) end
	if not more() then
		at = now -- there is more to do at once
	elseif index > 0 then
		at = due(call('LINDEX', Q, index - 1))
	elseif plain then
		local ttl = call('PTTL', K)
		if ttl >= 0 then at = now + ttl end
	else
		-- The first holder to expire; a tombstone may make the time earlier.
		at = tonumber(call('ZRANGE', D, 0, 0, 'WITHSCORES')[2] or nil)
	end
	return { 1, ahead, at and math.max(at - now + 1, 1) or 0, (holder()) }
end

-- renew makes a ticket that T has last for ms more, and returns the answer
-- about it. A first write that needs no memory lets it succeed where memory is
-- short. The rights that touch checks are not needed: each key has an end already.
local function renew(id, t, ms)
	if not touched then call('HDEL', N, '') end
	t.due = math.max(t.due, now + ms)
	call('HSET', T, '\2' .. id, num(t.due))
	if t.held then
		call('ZADD', D, num(t.due), id)
		keep_for(K, t.due - now)
	end
	extend_helpers(t.due - now)
	if t.held then return t.token end
	local index = call('LPOS', Q, place(id, t))
	if not index then -- Q was deleted or evicted
		remove(id, t)
		return { 3, '' }
	end
	if spent then return { -4 } end
	return waiting(index)
end

-- valid_ticket returns the ticket of an id if T has it, it has not expired, and
-- K has its hold if it is a holder.
local function valid_ticket(id)
	if idle then return nil end
	local t = ticket(id)
	if t and (t.due <= now or t.held and call('HEXISTS', K, field(id, t)) == 0) then
		remove(id, t)
		advance()
		return nil
	end
	return t
end

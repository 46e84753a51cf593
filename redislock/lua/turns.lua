-- Whose turn it is: the second half of what line.lua begins.

-- next_token returns the token of a grant, which save_token keeps.
local function next_token(floor)
	if not last then last = tonumber(call('GET', C) or 0) or bad() end
	local token = math.max(last + 1, math.floor((us - 1735689600000000) / 25), floor)
	if token <= MAX_TOKEN then return token end
	spent = true
end

-- save_token keeps the counter an hour longer than it is ahead of the clock.
-- After that the clock alone makes greater tokens.
local function save_token(token)
	last = token
	local ahead = math.max(0, token - (us - 1735689600000000) / 25)
	call('SET', C, num(token), 'PX', num(3600000 + ahead / 40 + 1))
end

-- hold_plain makes an unnamed ticket the holder of a mutex.
local function hold_plain(id, t, ms)
	call('HSET', K, id, '1', '\1' .. id, num(t.token) .. '\n' .. t.channel .. '\n' .. t.meta)
	call('PEXPIRE', K, num(ms))
	limit, used, plain = 1, 1, { id = id, token = t.token, channel = t.channel, meta = t.meta }
end

-- hold counts a place of another kind among the holders.
local function hold(field, count, t, ms)
	limit, used = t.limit, used + t.units
	call('HSET', K, field, num(count), '\1l', num(limit), '\1u', num(used))
	last_to(K, ms)
end

-- tell publishes to a ticket's channel and returns how many heard it. One to
-- which this user may not publish is as deaf as one that nobody listens to. Who
-- has none asks, and so finds out.
local function tell(channel, message)
	if channel == '' then return 1 end
	local n = redis.pcall('PUBLISH', channel, message)
	return type(n) == 'number' and n or 0
end

-- grant gives the place p, whose tickets these are and wait, what they wait
-- for, if anybody listens. asker is the ticket whose request this is, which
-- learns it by the answer.
local function grant(p, ids, tickets, asker)
	local floor, ends = 0, 0
	for _, t in ipairs(tickets) do
		floor = math.max(floor, t.token)
		ends = math.max(ends, t.due)
	end
	local token = next_token(floor)
	if not token then return false end
	touch()
	local heard = 0
	for i, id in ipairs(ids) do
		if id == asker then
			heard = heard + 1
		else
			heard = heard + tell(tickets[i].channel, 'held ' .. num(token) .. ' ' .. id)
		end
	end
	if heard == 0 then return false end
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
		hold(p == ids[1] and p or t.owner, t.limit == 1 and #ids or t.units, t, ends - now)
		linger(ends - now)
	end
	save_token(token)
	return true
end

-- living drops the tickets of a place whose time is over and returns the
-- others. Where there is no step left, it leaves the place as it is.
local function living(p)
	local ids, tickets, before = {}, {}, steps
	for _, id in ipairs(members(p)) do
		local t = ticket(id)
		if t and not t.held and t.due > now then
			ids[#ids + 1], tickets[#ids + 1] = id, t
		elseif steps >= MAX_STEPS then
			return nil
		elseif t and not t.held then
			steps = steps + 1
			remove(id, t)
		end
	end
	if #ids == 0 and steps == before then -- T does not know it at all
		steps = steps + 1
		touch()
		call('LREM', Q, 1, p)
	end
	return ids, tickets
end

-- advance drops those whose time is over and grants in order, to the first who
-- does not find room. One whose client does not listen keeps its place and is
-- passed over: whoever is granted must hear of it.
local function advance(asker)
	clear = false
	sweep()
	local i = 0
	while not idle and steps < MAX_STEPS and not (limit and used >= limit) do
		local p = call('LINDEX', Q, i)
		if not p then break end
		local ids, tickets = living(p)
		if not ids then return end
		if #ids > 0 then
			local t = tickets[1]
			limit = t.limit
			if used + t.units > limit or steps >= MAX_STEPS then return end
			steps = steps + 1
			if grant(p, ids, tickets, asker) then
				if i == 0 then call('LPOP', Q) else call('LREM', Q, 1, p) end
			else
				if spent then return end
				i = i + 1
			end
		end
	end
	clear = steps < MAX_STEPS
	if used == 0 and i == 0 and clear then limit = nil end
end

-- holder returns the metadata of one who holds.
local function holder()
	if plain then return plain.meta end
	if used == 0 then return '' end
	for _, field in ipairs(call('HRANDFIELD', K, 3)) do -- two fields are no owner's
		if string.byte(field) ~= 1 then
			local t = ticket(field) or ticket(members('\1' .. field)[1] or '')
			if t then return t.meta end
		end
	end
	return ''
end

-- waiting answers for a place at this index of Q, from which it first takes
-- those directly before whose time is over.
local function waiting(index)
	while index > 0 and steps < MAX_STEPS do
		local ids = living(call('LINDEX', Q, index - 1))
		if not ids or #ids > 0 then break end
		index = index - 1
	end
	local ahead, at = index, nil
	if used > 0 then ahead = ahead + (plain and 1 or call('HLEN', K) - 2) end
	if steps >= MAX_STEPS then
		at = now -- there is more to do at once
	elseif index > 0 then
		at = due(call('LINDEX', Q, index - 1))
	elseif plain then
		local ttl = call('PTTL', K)
		if ttl >= 0 then at = now + ttl end
	else
		-- The first of those that hold; a tombstone may make it earlier.
		at = tonumber(call('ZRANGE', D, 0, 0, 'WITHSCORES')[2] or nil)
	end
	return { 1, ahead, at and math.max(at - now + 1, 1) or 0, holder() }
end

-- renew keeps a ticket that T knows for ms more, and answers where it stands.
local function renew(id, t, ms)
	touch()
	t.due = math.max(t.due, now + ms)
	call('HSET', T, '\2' .. id, num(t.due))
	if t.held then
		call('ZADD', D, num(t.due), id)
		last_to(K, t.due - now)
	end
	linger(t.due - now)
	if t.held then return t.token end
	local index = call('LPOS', Q, place(id, t))
	if not index then -- Q was deleted or evicted
		remove(id, t)
		return { 3, '' }
	end
	if spent then return { -4 } end
	return waiting(index)
end

-- own returns the ticket of an id, if T has it, its time is not over, and K has
-- its hold, should it be one.
local function own(id)
	if idle then return nil end
	local t = ticket(id)
	if t and (t.due <= now or t.held and call('HEXISTS', K, t.owner == '' and id or t.owner) == 0) then
		remove(id, t)
		advance()
		return nil
	end
	return t
end

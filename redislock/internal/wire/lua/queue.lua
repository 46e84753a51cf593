-- A queue in Redis, and the steps that join, renew, leave, break and inspect
-- have in common. docs.go describes the content of the keys.
--
-- No command that could fail may follow one that had an effect, because a
-- script that fails is not undone. So all keys are read before the first write,
-- which finds those of a wrong type, and commands without effect come before
-- it, to which the server applies the same checks as to all others: see touch.

local K, Q, D, T -- the keys of the queue: holders, waiters, due, tickets
local M = KEYS[5] -- the high-water mark of tokens
local A = KEYS[6] -- the last tokens of queues that are ahead of it
local N = KEYS[7] or 'holdfast_none' -- a key that never exists

local us, now -- the server's time, in microseconds and milliseconds

local limit -- of the queue; nil while it is empty
local used -- units held
local plain -- the hold that is kept in K alone: id, token, channel, meta
local idle -- there is no waiter, no tombstone, and no hold but a plain one
local touched
local steps -- holders dropped and tickets granted
local drops -- waiters dropped
local last -- the queue's own last token, once it was read
local mark -- the high-water mark, once it was read
local spent -- the queue has no token left
local clear -- advance has seen all waiters: none of them is before a new ticket

local MAX_STEPS, MAX_DROPS = 64, 256
local MAX_TOKEN = 9007199254740991 -- the largest number that is exact here

local function num(n) return string.format('%.0f', n) end

-- touch makes writes without effect. Without enough replicas or disk, Redis
-- refuses a script at its first write; without memory, at the first write that
-- may need some, as one that grows the queue does. Redis refuses a command that
-- the user has no right to when it is called: without the rights that touch
-- checks, a part of the queue would be left that never expires. Without any
-- other right, the next request drops what is left.
local function touch(grows)
	if touched then return end
	touched = true
	if grows then call('ZADD', N, 'XX', 0, '') end
	call('HDEL', N, '')
	call('PEXPIRE', N, 1)
	call('PTTL', N)
end

local function clock()
	local time = call('TIME')
	us = time[1] * 1000000 + time[2]
	now = math.floor(us / 1000)
end

-- bad ends the script: a helper key has data that this version does not write.
local function bad() error('HOLDFAST-LAYOUT') end

-- read_holders reads the holders. It returns false when K is not ours.
local function read_holders()
	limit, used, plain = nil, 0, nil
	local n = call('HLEN', K)
	if n == 0 then return true end
	if n > 3 then
		local v = call('HMGET', K, '\1l', '\1u')
		limit, used = tonumber(v[1] or nil), tonumber(v[2] or nil)
		return limit and used and true or false
	end
	local v, fields, mode, id, count, mark, record = call('HGETALL', K), 0, nil, nil, nil, nil, nil
	for i = 1, #v, 2 do
		if v[i] == 'mode' then
			mode = v[i + 1]
		elseif string.byte(v[i]) == 1 then
			fields, mark, record = fields + 1, v[i], v[i + 1]
		else
			fields, id, count = fields + 1, v[i], v[i + 1]
		end
	end
	if mode and mode ~= 'holdfast' then return false end
	if fields == 0 then return true end -- a client of a version without mode has left
	if fields == 3 then -- a client of a version without mode holds, perhaps with others
		local v = call('HMGET', K, '\1l', '\1u')
		limit, used = tonumber(v[1] or nil), tonumber(v[2] or nil)
		return limit and used and true or false
	end
	if fields == 2 then
		if not id or mark ~= '\1' .. id then return false end
	elseif not id or not string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') then
		return false -- not a lock of Redisson either, which has no record beside it
	end
	if not string.find(count, '^%d+$') then return false end
	limit, used, plain = 1, 1, { id = id, token = 0, channel = '', meta = '' }
	if record then
		local token, channel, meta = string.match(record, '^(%d+)\n([^\n]*)\n(.*)$')
		if not token then return false end
		plain.token, plain.channel, plain.meta = tonumber(token), channel, meta
	end
	return true
end

-- open begins with the queue whose keys start at KEYS[i].
local function open(i)
	K, Q, D, T = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
	touched, steps, drops, last, mark, spent, clear = false, 0, 0, nil, nil, false, false
end

-- ticket returns the ticket of an id as T has it, or nil. The token of a waiter
-- is its minimum token. A ticket without a time has no place.
local function ticket(id)
	local v = call('HMGET', T, id, '\2' .. id)
	if not v[1] or v[1] == '1x' then return nil end
	local t = { due = tonumber(v[2] or 0), held = false, limit = 1, units = 1, owner = '' }
	local state, rest = string.match(v[1], '^1(%l)\n(.*)$')
	if state == 'm' then
		t.token, t.channel, t.meta = string.match(rest, '^(%d+)\n([^\n]*)\n(.*)$')
	elseif state == 'w' or state == 'h' then
		t.held = state == 'h'
		t.limit, t.units, t.token, t.owner, t.channel, t.meta =
			string.match(rest, '^(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)\n(.*)$')
	end
	if not t.meta or not t.due then bad() end
	t.limit, t.units, t.token = tonumber(t.limit), tonumber(t.units), tonumber(t.token)
	return t
end

-- field returns the name of a place in K: its owner or its ticket, with a
-- prefix for an owner whose name is that of the field mode.
local function field(id, t)
	if t.owner == '' then return id end
	return t.owner == 'mode' and '\1mode' or t.owner
end

-- place returns the name of a ticket's place in Q, and in T, where the place of
-- a named owner may have several tickets.
local function place(id, t) return t.owner == '' and id or '\1' .. t.owner end

-- store writes a ticket, with the time at which it is due. Holders are in D as
-- well, where the expired ones are found.
local function store(id, t)
	local due = num(t.due)
	if t.limit == 1 and t.owner == '' and not t.held then
		call('HSET', T, id, table.concat({ '1m', num(t.token), t.channel, t.meta }, '\n'), '\2' .. id, due)
		return
	end
	if t.held then call('ZADD', D, due, id) end
	call('HSET', T, id, table.concat({ t.held and '1h' or '1w', num(t.limit), num(t.units),
		num(t.token), t.owner, t.channel, t.meta }, '\n'), '\2' .. id, due)
end

-- members returns the tickets of a place in order of arrival.
local function members(p)
	if string.byte(p) ~= 1 then return { p } end
	local ids = {}
	for id in string.gmatch(call('HGET', T, p) or '', '[^\n]+') do ids[#ids + 1] = id end
	return ids
end

-- due returns the time at which a place is dropped unless it is renewed; 0 for
-- none.
local function due(p)
	local at = 0
	for _, id in ipairs(members(p)) do
		at = math.max(at, tonumber(call('HGET', T, '\2' .. id) or 0))
	end
	return at
end

-- keep_for makes a key last for ms at least.
local function keep_for(key, ms)
	if call('PTTL', key) < ms then call('PEXPIRE', key, num(ms)) end
end

-- extend_helpers makes the helper keys last for ms at least; an abandoned queue
-- disappears after that. When one falls short, all get twice that time, so that
-- not every request extends them; so T and D never expire before Q.
local function extend_helpers(ms)
	local left, short = {}, false
	for i, key in ipairs({ Q, D, T }) do
		left[i] = call('PTTL', key)
		short = short or left[i] ~= -2 and left[i] < ms
	end
	for i, key in ipairs({ Q, D, T }) do
		if short and left[i] ~= -2 and left[i] < 2 * ms then call('PEXPIRE', key, num(2 * ms)) end
	end
end

-- release_units subtracts a holder's units. If K has lost the holder, because K
-- was deleted or evicted, it subtracts nothing: the units are others'.
local function release_units(name, units)
	if call('HDEL', K, name) == 0 then return end
	used = used - units
	if used <= 0 then
		used = 0
		call('HDEL', K, '\1l', '\1u', 'mode')
	else
		call('HSET', K, '\1u', num(used))
	end
end

-- remove removes a ticket that T has: first from where it counts, since later
-- requests find and drop the rest. A place near the end of Q is looked for from
-- there, with from = -1.
local function remove(id, t, from)
	touch()
	local p = place(id, t)
	local rest = {}
	if p ~= id then
		for _, other in ipairs(members(p)) do
			if other ~= id then rest[#rest + 1] = other end
		end
	end
	if #rest > 0 then
		call('HSET', T, p, table.concat(rest, '\n'))
		if t.held and t.limit == 1 then call('HSET', K, field(id, t), #rest) end
	elseif t.held then
		release_units(field(id, t), t.units)
	end
	call('HDEL', T, id, '\2' .. id)
	if p ~= id and #rest == 0 then call('HDEL', T, p) end
	if t.held then
		call('ZREM', D, id)
	elseif #rest == 0 then
		call('LREM', Q, from or 1, p)
	end
end

-- remove_plain removes the plain hold.
local function remove_plain()
	touch()
	call('HDEL', K, plain.id, '\1' .. plain.id, 'mode')
	used, plain = 0, nil
end

-- add_tombstone records that an id is gone, for longer than any request can be
-- under way.
local function add_tombstone(id)
	touch()
	call('HSET', T, id, '1x')
	call('ZADD', D, num(now + 300000), '\3' .. id)
	keep_for(T, 300000)
	keep_for(D, 300000)
	idle = false
end

-- rebuild_due restores D from T after one of them was deleted or evicted and K
-- was not: otherwise the hold of a dead client would never expire while others
-- hold. T has the expiry of each holder, and a holder missing from T holds
-- nothing.
local function rebuild_due()
	local all, ends, holds = call('HGETALL', T), {}, false
	for i = 1, #all, 2 do
		local id, first = all[i], string.byte(all[i])
		if first ~= 1 and first ~= 2 then
			local t = ticket(id)
			if not t then -- a tombstone
				ends[#ends + 1] = { num(now + 300000), '\3' .. id }
			elseif t.held then
				ends[#ends + 1] = { num(t.due), id }
				holds = true
			end
		end
	end
	touch()
	for _, e in ipairs(ends) do call('ZADD', D, e[1], e[2]) end
	if #ends > 0 then keep_for(D, call('PTTL', T)) end
	if not holds then
		call('DEL', K)
		limit, used = nil, 0
	end
	idle = call('EXISTS', Q, D) == 0
end

-- sweep drops expired holders and old tombstones.
local function sweep()
	idle = call('EXISTS', Q, D) == 0
	if used > 0 and not plain and call('EXISTS', D, T) < 2 then rebuild_due() end
	if idle then return end
	local head = call('ZRANGE', D, 0, 0, 'WITHSCORES')
	if not head[1] or tonumber(head[2]) > now then return end
	for _, id in ipairs(call('ZRANGEBYSCORE', D, '-inf', num(now), 'LIMIT', 0, MAX_STEPS)) do
		local t = string.byte(id) ~= 3 and ticket(id)
		if t then
			if steps >= MAX_STEPS then return end
			steps = steps + 1
			remove(id, t)
		else
			touch()
			call('ZREM', D, id)
			if string.byte(id) == 3 then call('HDEL', T, string.sub(id, 2)) end
		end
	end
end

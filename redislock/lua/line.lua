-- A line in Redis, and the steps that join, renew, leave, break and inspect
-- have in common. docs.go describes what the keys hold.
--
-- The order of things matters in one respect: a command that could fail must
-- not come after one that had an effect, because a script that fails is not
-- undone. So all keys are read, which finds those of a wrong type, before the
-- first write, and the first write is one that a server out of memory, or one
-- that takes no writes, would judge as it judges all: see touch.

local K, Q, D, T, C -- the line's keys

local us, now -- the server's time, in microseconds and milliseconds

local limit -- of the line; nil while nobody has a place in it
local used -- units held
local plain -- the hold that is kept in K alone: id, token, channel, meta
local idle -- nobody waits, there is no tombstone, and no hold but a plain one
local touched
local steps -- tickets dropped and granted
local last -- the token counter, once it was read
local spent -- it has no more tokens
local clear -- advance went along all who wait: none of them is before a new ticket

local MAX_STEPS = 64
local MAX_TOKEN = 9007199254740991 -- the largest number that is exact here

local function num(n) return string.format('%.0f', n) end

-- touch makes a write without effect. The writes after it cannot fail: Redis
-- refuses a script for want of memory, replicas or disk at its first write.
local function touch()
	if not touched then
		touched = true
		call('HDEL', K, '\1')
	end
end

local function clock()
	local time = call('TIME')
	us = time[1] * 1000000 + time[2]
	now = math.floor(us / 1000)
end

-- bad ends the script: a helper holds what this version did not write.
local function bad() error('HOLDFAST-LAYOUT') end

-- look reads who holds. It answers false when K is nothing of ours.
local function look()
	limit, used, plain = nil, 0, nil
	local n = call('HLEN', K)
	if n == 0 then return true end
	if n > 2 then
		local v = call('HMGET', K, '\1l', '\1u')
		limit, used = tonumber(v[1] or nil), tonumber(v[2] or nil)
		return limit and used and true or false
	end
	local v = call('HGETALL', K)
	local id, count, record = v[1], v[2], nil
	if n == 2 then
		if string.byte(id) == 1 then v = { v[3], v[4], v[1], v[2] } end
		id, count, record = v[1], v[2], v[4]
		if v[3] ~= '\1' .. id then return false end
	elseif not string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') then
		return false -- nor a lock of Redisson, which has no record beside it
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

-- open begins with the line whose keys start at KEYS[i].
local function open(i)
	K, Q, D, T, C = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3], KEYS[i + 4]
	touched, steps, last, spent, clear = false, 0, nil, false, false
end

-- ticket returns what T says of an id, or nil. While it waits, its token is its
-- floor. Without a time it has no place.
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

-- place returns how a ticket's place is called in Q, and in T where the place
-- is a named owner's and may have several tickets.
local function place(id, t) return t.owner == '' and id or '\1' .. t.owner end

-- store writes a ticket down, with when it is due. Those that hold are in D as
-- well, which finds the ones whose time is over.
local function store(id, t)
	local due = num(t.due)
	if t.limit == 1 and t.owner == '' and not t.held then
		call('HSET', T, id, table.concat({ '1m', num(t.token), t.channel, t.meta }, '\n'), '\2' .. id, due)
		return
	end
	call('HSET', T, id, table.concat({ t.held and '1h' or '1w', num(t.limit), num(t.units),
		num(t.token), t.owner, t.channel, t.meta }, '\n'), '\2' .. id, due)
	if t.held then call('ZADD', D, due, id) end
end

-- members returns the tickets of a place in order of arrival.
local function members(p)
	if string.byte(p) ~= 1 then return { p } end
	local ids = {}
	for id in string.gmatch(call('HGET', T, p) or '', '[^\n]+') do ids[#ids + 1] = id end
	return ids
end

-- due returns when a place is dropped unless it is renewed; 0 for none.
local function due(p)
	local at = 0
	for _, id in ipairs(members(p)) do
		at = math.max(at, tonumber(call('HGET', T, '\2' .. id) or 0))
	end
	return at
end

-- last_to keeps a key for ms at least.
local function last_to(key, ms)
	if call('PTTL', key) < ms then call('PEXPIRE', key, num(ms)) end
end

-- linger keeps the helpers for ms at least, so that a line that everybody has
-- forsaken disappears. When one falls short, all get twice that, not to be
-- touched each time; so T and D never end before Q.
local function linger(ms)
	local left, short = {}, false
	for i, key in ipairs({ Q, D, T }) do
		left[i] = call('PTTL', key)
		short = short or left[i] ~= -2 and left[i] < ms
	end
	for i, key in ipairs({ Q, D, T }) do
		if short and left[i] ~= -2 and left[i] < 2 * ms then call('PEXPIRE', key, num(2 * ms)) end
	end
end

-- free takes a place off those that hold. What K does not have, because K was
-- deleted or evicted, must not be taken off others.
local function free(field, units)
	if call('HDEL', K, field) == 0 then return end
	used = used - units
	if used <= 0 then
		used = 0
		call('DEL', K)
	else
		call('HSET', K, '\1u', num(used))
	end
end

-- remove takes a ticket that T knows out of the line.
local function remove(id, t)
	touch()
	call('HDEL', T, id, '\2' .. id)
	if t.held then call('ZREM', D, id) end
	local p = place(id, t)
	if p ~= id then
		local rest = {}
		for _, other in ipairs(members(p)) do
			if other ~= id then rest[#rest + 1] = other end
		end
		if #rest > 0 then
			call('HSET', T, p, table.concat(rest, '\n'))
			if t.held and t.limit == 1 then call('HSET', K, t.owner, #rest) end
			return
		end
		call('HDEL', T, p)
	end
	if t.held then
		free(p == id and id or t.owner, t.units)
	else
		call('LREM', Q, 1, p)
	end
end

-- remove_plain takes the plain hold out.
local function remove_plain()
	touch()
	call('HDEL', K, plain.id, '\1' .. plain.id)
	used, plain = 0, nil
end

-- bury remembers that an id is gone, longer than any request can be under way.
local function bury(id)
	touch()
	call('HSET', T, id, '1x')
	call('ZADD', D, num(now + 300000), '\3' .. id)
	last_to(T, 300000)
	last_to(D, 300000)
	idle = false
end

-- mend is for a line whose D or T was deleted or evicted, and K was not: what
-- those held who died would never end while others hold. T says when each ends,
-- and who is not in it holds nothing.
local function mend()
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
	if #ends > 0 then last_to(D, call('PTTL', T)) end
	if not holds then
		call('DEL', K)
		limit, used = nil, 0
	end
	idle = call('EXISTS', Q, D) == 0
end

-- sweep drops the holders whose time is over, and forgets old tombstones.
local function sweep()
	idle = call('EXISTS', Q, D) == 0
	if used > 0 and not plain and call('EXISTS', D, T) < 2 then mend() end
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

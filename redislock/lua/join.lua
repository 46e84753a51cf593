-- join, second half. Answers the token of a ticket that holds, or
--   {1, places ahead, milliseconds to recheck, holder}  waiting
--   {3, holder}                                         gone
-- or, with a further 1 at its end, the holder's record in place of the holder's
-- metadata; or
--   {-1} K is not ours  {-2, limit} of another kind  {-3} fewer units  {-4} no more tokens

local id, ms, channel, meta, wait = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5] == '1'
local want, units = tonumber(ARGV[7] or 1), tonumber(ARGV[8] or 1)
local owner, replaces = ARGV[9] or '', ARGV[10] or ''

open(1)
if not look() then return { -1 } end
clock()
advance(id)
local t = own(id)
local mine = plain and plain.id == id
if not mine and not t and not idle and call('HGET', T, id) == '1x' then return { 3, '' } end

if replaces ~= '' then
	if plain and plain.id == replaces then
		remove_plain()
		advance(id)
	else
		local old = own(replaces)
		if old then
			remove(replaces, old)
			advance(id)
		end
	end
	t = t and own(id)
end

if mine then
	call('PEXPIRE', K, num(ms))
	return plain.token
end
if t then
	if not wait and not t.held then
		remove(id, t)
		return { 3, holder() }
	end
	return renew(id, t, ms)
end

if limit and limit ~= want then return { -2, limit } end

t = { held = false, limit = want, units = units, token = floor, owner = owner, channel = channel, meta = meta, due = now + ms }
local p = place(id, t)
local ids = p ~= id and not idle and members(p) or {}
if #ids > 0 then -- the owner has a place: share it
	local there = ticket(ids[1]) or bad()
	if units > there.units then return { -3 } end
	if not wait and not there.held then return { 3, holder() } end
	t.held, t.units = there.held, there.units
	if there.held then t.token = there.token end
	ids[#ids + 1] = id
	store(id, t)
	call('HSET', T, p, table.concat(ids, '\n'))
	if t.held and t.limit == 1 then call('HSET', K, owner, #ids) end
	return renew(id, t, ms)
end

if spent or floor > 4503599627370496 then return { -4 } end
if clear and used + units <= want then
	local token = next_token(floor)
	if not token or token > 4503599627370496 then return { -4 } end
	t.token = token
	if owner == '' and want == 1 then
		hold_plain(id, t, ms)
	else
		call('HLEN', T) -- fails if it is of a wrong type, before anything is written
		t.held = true
		hold(p == id and id or owner, want == 1 and 1 or units, t, ms)
		store(id, t)
		if p ~= id then call('HSET', T, p, id) end
		linger(ms)
	end
	save_token(token)
	return token
end
if not wait then return { 3, holder() } end

store(id, t)
local length = redis.pcall('RPUSH', Q, p)
if type(length) ~= 'number' then -- of a wrong type, which nothing has found out yet
	call('HDEL', T, id, '\2' .. id)
	return length
end
if p ~= id then call('HSET', T, p, id) end
linger(ms)
return waiting(length - 1)

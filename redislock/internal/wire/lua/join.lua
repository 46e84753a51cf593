-- join, second half. Answers the token of a ticket that holds, or
--   {1, places ahead, milliseconds to recheck, holder}  waiting
--   {3, holder, 0 or 1, milliseconds}                   gone
-- with a 1 after the holder for the holder's record in place of the holder's
-- metadata, and the time that the holder has left; or
--   {-1} K is not ours  {-2, limit} of another kind  {-3} fewer units  {-4} no more tokens

local id, ms, channel, meta, wait = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5] == '1'
local want, units = tonumber(ARGV[7] or 1), tonumber(ARGV[8] or 1)
local owner, replaces = ARGV[9] or '', ARGV[10] or ''

open(1)
if not read_holders() then return { -1 } end
clock()
advance(id)
local t = valid_ticket(id)
local mine = plain and plain.id == id
if not mine and not t and not idle and call('HGET', T, id) == '1x' then return { 3, '' } end

if replaces ~= '' then
	if plain and plain.id == replaces then
		remove_plain()
		advance(id)
	else
		local old = valid_ticket(replaces)
		if old then
			remove(replaces, old)
			advance(id)
		end
	end
	t = t and valid_ticket(id)
end

if mine then
	call('PEXPIRE', K, num(ms))
	return plain.token
end
if t then
	if not wait and not t.held then
		remove(id, t)
		return gone()
	end
	return renew(id, t, ms)
end

if limit and limit ~= want then return { -2, limit } end

t = { held = false, limit = want, units = units, token = min_token, owner = owner, channel = channel, meta = meta, due = now + ms }
local p = place(id, t)
local ids = p ~= id and not idle and members(p) or {}
if #ids > 0 then -- the owner has a place, which the ticket shares
	local there = ticket(ids[1]) or bad()
	if units > there.units then return { -3 } end
	if not wait and not there.held then return gone() end
	t.held, t.units = there.held, there.units
	if there.held then t.token = there.token end
	ids[#ids + 1] = id
	touch(true)
	store(id, t)
	call('HSET', T, p, table.concat(ids, '\n'))
	if t.held and t.limit == 1 then call('HSET', K, field(id, t), #ids) end
	return renew(id, t, ms)
end

if spent or min_token > 4503599627370496 then return { -4 } end
if clear and used + units <= want then
	local token = next_token(min_token)
	if not token or token > 4503599627370496 then return { -4 } end
	t.token = token
	call('HLEN', T) -- fails if it is of a wrong type, before anything is written
	save_token(token)
	touch()
	if owner == '' and want == 1 then
		hold_plain(id, t, ms)
	else
		t.held = true
		store(id, t)
		if p ~= id then call('HSET', T, p, id) end
		hold(id, want == 1 and 1 or units, t, ms)
		extend_helpers(ms)
	end
	return token
end
if not wait then return gone() end

touch(true)
store(id, t)
local length = redis.pcall('RPUSH', Q, p)
if type(length) ~= 'number' then -- of a wrong type, or not allowed, which no earlier command has shown
	call('HDEL', T, id, '\2' .. id)
	return length
end
if p ~= id then call('HSET', T, p, id) end
extend_helpers(ms)
return waiting(length - 1)

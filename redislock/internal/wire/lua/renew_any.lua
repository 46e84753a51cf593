-- renew, second half: tickets of every kind.

local own_keys = fast + 4 * ((#ARGV - 1) / 2 - fast)
M, A, N = KEYS[own_keys + 1], KEYS[own_keys + 2], KEYS[own_keys + 3] or 'holdfast_none'
clock()

local function one(i, id, ms)
	open(i)
	if not read_holders() then return { -1 } end
	advance(id)
	if plain and plain.id == id then
		call('PEXPIRE', K, num(ms))
		return plain.token
	end
	local t = valid_ticket(id)
	if not t then return { 3 } end
	return renew(id, t, ms)
end

for i = fast + 1, (#ARGV - 1) / 2 do
	local ok, answer = pcall(one, fast + 4 * (i - fast - 1) + 1, ARGV[2 * i], tonumber(ARGV[2 * i + 1]))
	if not ok and type(answer) == 'table' then answer = answer.err end
	out[i] = answer
end
return out

-- leave, second half.

open(1)
clock()
local state = 3
if released then
	state = 2
	limit, used, plain = nil, 0, nil
elseif not read_holders() then
	return { -1 }
end

local function rest()
	-- The ticket is removed before any grant: otherwise this very request could
	-- grant to it, and leave it behind as the holder.
	sweep()
	if plain and plain.id == ARGV[1] then
		state = 2
		remove_plain()
	end
	local t = state == 3 and valid_ticket(ARGV[1])
	if t then
		state = t.held and 2 or 1
		remove(ARGV[1], t)
	end
	advance(nil, true)
	if ARGV[3] then add_tombstone(ARGV[1]) end
end

if released then
	-- The ticket has been released, even if nothing can be done for others.
	-- touch checks the rights that a grant needs, since a grant without PEXPIRE
	-- would never expire.
	pcall(rest)
else
	rest()
end
return state

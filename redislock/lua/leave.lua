-- leave, second half.

open(1)
touched = ARGV[2] == '1'
clock()
local state = 3
if n > 0 then
	state = 2
	limit, used, plain = nil, 0, nil
elseif not look() then
	return { -1 }
end
-- Who leaves goes before anybody is granted, or else its turn could come with
-- this very request, and it would be left behind as the one who holds.
sweep()
local t = state == 3 and own(ARGV[1])
if t then
	state = t.held and 2 or 1
	remove(ARGV[1], t)
end
advance()
if ARGV[3] then bury(ARGV[1]) end
return state

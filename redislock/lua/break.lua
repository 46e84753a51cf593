-- break: takes a ticket out, whoever's it is, and tells its client.
--
-- KEYS  1 line  2 queue  3 due  4 tickets  5 token
-- ARGV  1 id
-- Answers 1, 3 when there is no such ticket, or {-1} when K is not ours.

local id = ARGV[1]
open(1)
if not look() then return { -1 } end
clock()
advance()
local channel
if plain and plain.id == id then
	channel = plain.channel
	remove_plain()
else
	local t = own(id)
	if not t then return 3 end
	channel = t.channel
	remove(id, t)
end
tell(channel, 'gone 0 ' .. id)
bury(id)
advance()
return 1

-- break: removes a ticket of any client, and notifies that client.
--
-- KEYS  1 holders  2 waiters  3 due  4 tickets  5 mark  6 ahead  7 none, in a cluster
-- ARGV  1 id
-- Answers 1, 3 when there is no such ticket, or {-1} when K is not ours.

local id = ARGV[1]
open(1)
if not read_holders() then return { -1 } end
clock()
advance()
local channel
if plain and plain.id == id then
	channel = plain.channel
	remove_plain()
else
	local t = valid_ticket(id)
	if not t then return 3 end
	channel = t.channel
	remove(id, t)
end
notify(channel, 'gone 0 ' .. id)
add_tombstone(id)
advance()
return 1

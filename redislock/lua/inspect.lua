-- inspect: the line as it is stored, for the client to read.
--
-- KEYS  1 line  2 queue  3 due  4 tickets  5 token
-- ARGV  1 "count" to learn only whether the line has tickets
-- Answers {K, Q, T, C, remaining milliseconds of K, now}, or {-1} when K is not
-- ours; with "count" 1, 0 or {-1}.

open(1)
if not look() then return { -1 } end
clock()
advance()
if ARGV[1] == 'count' then
	return used > 0 and 1 or idle and 0 or call('EXISTS', Q)
end
return { call('HGETALL', K), call('LRANGE', Q, 0, -1), call('HGETALL', T),
	call('GET', C) or '', call('PTTL', K), now }

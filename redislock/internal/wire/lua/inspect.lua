-- inspect: the queue as it is stored, for the client to decode.
--
-- KEYS  1 holders  2 waiters  3 due  4 tickets  5 mark  6 ahead  7 none, in a cluster
-- ARGV  1 "count" to learn only whether the queue has tickets
-- Answers {K, Q, T, the token in A, remaining milliseconds of K, now}, or {-1}
-- when K is not ours; with "count" 1, 0 or {-1}.

open(1)
if not read_holders() then return { -1 } end
clock()
advance()
if ARGV[1] == 'count' then
	return used > 0 and 1 or idle and 0 or call('EXISTS', Q)
end
return { call('HGETALL', K), call('LRANGE', Q, 0, -1), call('HGETALL', T),
	call('ZSCORE', A, K) or '', call('PTTL', K), now }

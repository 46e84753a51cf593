-- The usual sale: the shard has enough, nothing is brought to it, and the id is
-- new. It is settled here, before anything is defined that it does not need.
-- KEYS and ARGV are those of the sale in full, below.
if ARGV[1] == 'sell' and ARGV[6] == '0' and not ARGV[7] then
  local has = redis.call('HMGET', KEYS[1], 'epoch', 'free', 'sold', 'version')
  if has[1] == ARGV[2] and tonumber(has[2]) >= tonumber(ARGV[4])
    and redis.call('HEXISTS', KEYS[2], ARGV[3]) == 0
    and redis.call('SET', KEYS[4], 's' .. ARGV[4], 'PX', ARGV[5], 'NX') then
    redis.call('HSET', KEYS[1], 'free', has[2] - ARGV[4], 'sold', has[3] + ARGV[4], 'version', has[4] + 1)
    return {'done', 's' .. ARGV[4]}
  end
end

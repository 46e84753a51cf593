-- ARGV: op epoch sale units keep lease, and of a transfer to accept before: from
-- seq units, or nothing.
local has = redis.call('HMGET', KEYS[1], 'epoch', 'free', 'sold', 'version')
if not has[1] then return {'absent'} end
if tonumber(has[1]) < tonumber(ARGV[2]) then return {'moved', has[1]} end
if ARGV[7] then
  accept(ARGV[7], ARGV[8], ARGV[9])
  has = redis.call('HMGET', KEYS[1], 'epoch', 'free', 'sold', 'version')
end
if has[1] ~= ARGV[2] then return {'moved', has[1]} end
local old = receipt(ARGV[3], ARGV[5])
if old then return {'old', old} end
local units = tonumber(ARGV[4])
if ARGV[1] == 'add' then
  redis.call('HINCRBY', KEYS[1], 'free', units)
  redis.call('HINCRBY', KEYS[1], 'more', units)
  redis.call('HINCRBY', KEYS[1], 'version', 1)
  redis.call('SET', KEYS[4], 'a' .. ARGV[4], 'PX', ARGV[5])
  return {'done', 'a' .. ARGV[4]}
end
if tonumber(has[2]) < units then
  lapse(ARGV[5])
  has = redis.call('HMGET', KEYS[1], 'epoch', 'free', 'sold', 'version', 'transit')
  if tonumber(has[2]) < units then return {'short', has[2], has[5] or '0'} end
end
local free, version = has[2] - units, has[4] + 1
if ARGV[6] == '0' then
  redis.call('HSET', KEYS[1], 'free', free, 'sold', has[3] + units, 'version', version)
  redis.call('SET', KEYS[4], 's' .. ARGV[4], 'PX', ARGV[5])
  return {'done', 's' .. ARGV[4]}
end
redis.call('HSET', KEYS[1], 'free', free, 'version', version)
redis.call('HINCRBY', KEYS[1], 'held', units)
redis.call('HSET', KEYS[2], ARGV[3], 'r' .. ARGV[4])
redis.call('ZADD', KEYS[3], now() + ARGV[6], ARGV[3])
return {'done', 'r' .. ARGV[4]}

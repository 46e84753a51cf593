-- ARGV: op epoch sale keep home. op is find, confirm, cancel or return; home is
-- 1 at the shard where the directory of the epoch puts the sale.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return {'absent'} end
if tonumber(epoch) < tonumber(ARGV[2]) then return {'moved', epoch} end
local op, sale, keep = ARGV[1], ARGV[3], ARGV[4]
local has = receipt(sale, keep)
local state, units = '', 0
if has then
  state, units = string.sub(has, 1, 1), string.sub(has, 2)
elseif epoch ~= ARGV[2] then
  return {'moved', epoch}
elseif op == 'cancel' and ARGV[5] == '1' then
  redis.call('SET', KEYS[4], 'c0', 'PX', keep)
  return {'done', 'c0'}
else
  return {'none'}
end
if op == 'confirm' and state == 'r' then
  redis.call('HINCRBY', KEYS[1], 'held', -units)
  redis.call('HINCRBY', KEYS[1], 'sold', units)
  state = 's'
elseif op == 'cancel' and state == 'r' then
  redis.call('HINCRBY', KEYS[1], 'held', -units)
  redis.call('HINCRBY', KEYS[1], 'free', units)
  state = 'c'
elseif op == 'return' and state == 's' then
  redis.call('HINCRBY', KEYS[1], 'free', units)
  redis.call('HINCRBY', KEYS[1], 'back', units)
  state = 'b'
else
  return {'old', has}
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HDEL', KEYS[2], sale)
redis.call('ZREM', KEYS[3], sale)
redis.call('SET', KEYS[4], state .. units, 'PX', keep)
return {'done', state .. units}

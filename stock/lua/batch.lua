-- Usual sales of one shard that arrived together. KEYS: 1 and 2 those of the
-- shard, then the receipt of each sale. ARGV: epoch keep, then the id and the
-- units of each sale. The answer has the places of those that are not made: they
-- are unusual, and have to be asked for one by one. Nothing here can fail after
-- the first receipt is written.
local has = redis.call('HMGET', KEYS[1], 'epoch', 'free', 'sold', 'version')
if not has[1] then return {'absent'} end
if has[1] ~= ARGV[1] then return {'moved', has[1]} end
local free, sold, made, apart = tonumber(has[2]), 0, 0, {'done'}
local held = redis.call('HLEN', KEYS[2]) > 0
for i = 3, #KEYS do
  local text = ARGV[2 * i - 2]
  local units = tonumber(text)
  if units <= free and not (held and redis.call('HEXISTS', KEYS[2], ARGV[2 * i - 3]) == 1)
    and redis.call('SET', KEYS[i], 's' .. text, 'PX', ARGV[2], 'NX') then
    free, sold, made = free - units, sold + units, made + 1
  else
    apart[#apart + 1] = i - 3
  end
end
if made > 0 then
  redis.call('HSET', KEYS[1], 'free', free, 'sold', has[3] + sold, 'version', has[4] + made)
end
return apart

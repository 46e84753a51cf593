-- ARGV: op, and for
--   pull    to units whole keep   accept  from seq units
--   clear   to seq                look    keep
--   place   epoch units fill
local op = ARGV[1]
if op == 'place' then
  local epoch = redis.call('HGET', KEYS[1], 'epoch')
  if not epoch then
    local free = 0
    if ARGV[4] == '1' then free = ARGV[3] end
    redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'free', free, 'sold', 0, 'held', 0, 'version', 0)
  elseif tonumber(epoch) < tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
  end
  return {'done'}
end
if redis.call('EXISTS', KEYS[1]) == 0 then return {'absent'} end
if op == 'accept' then
  accept(ARGV[2], ARGV[3], ARGV[4])
elseif op == 'clear' then
  local out = redis.call('HGET', KEYS[1], 'out:' .. ARGV[2])
  local seq, units = string.match(out or '', '^(%d+) (%d+)$')
  if seq == ARGV[3] then
    redis.call('HDEL', KEYS[1], 'out:' .. ARGV[2])
    redis.call('HINCRBY', KEYS[1], 'transit', -units)
    redis.call('HINCRBY', KEYS[1], 'version', 1)
  end
elseif op == 'look' then
  lapse(ARGV[2])
  return {'done', redis.call('HGETALL', KEYS[1])}
elseif op == 'pull' then
  local out = redis.call('HGET', KEYS[1], 'out:' .. ARGV[2])
  if out then
    local seq, units = string.match(out, '^(%d+) (%d+)$')
    return {'took', seq, units}
  end
  local want = tonumber(ARGV[3])
  local free = tonumber(redis.call('HGET', KEYS[1], 'free'))
  if free < want then
    lapse(ARGV[5])
    free = tonumber(redis.call('HGET', KEYS[1], 'free'))
  end
  if free == 0 or ARGV[4] == '1' and free < want then
    return {'short', tostring(free), redis.call('HGET', KEYS[1], 'transit') or '0'}
  end
  local units = math.min(free, want)
  if ARGV[4] == '1' then units = math.max(units, math.floor(free / 2)) end
  local seq = redis.call('HINCRBY', KEYS[1], 'seq:' .. ARGV[2], 1)
  redis.call('HSET', KEYS[1], 'out:' .. ARGV[2], seq .. ' ' .. string.format('%.0f', units))
  redis.call('HINCRBY', KEYS[1], 'free', -units)
  redis.call('HINCRBY', KEYS[1], 'transit', units)
  redis.call('HINCRBY', KEYS[1], 'version', 1)
  return {'took', tostring(seq), string.format('%.0f', units)}
end
return {'done'}

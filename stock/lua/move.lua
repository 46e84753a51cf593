-- ARGV: op epoch, and for
--   pull    to units whole keep   accept  from seq units
--   clear   to seq                look    keep
--   place   units fill must dir try
-- A shard that is older than the directory of the epoch has lost what it had: it
-- takes part in nothing. An intact one is at least of the epoch before the one
-- that place tells it: every shard was told that before the next began.
local op = ARGV[1]
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if op == 'place' then
  local dir, write = '', ARGV[7] ~= '1'
  if not epoch then
    if ARGV[5] == '1' then return {'absent'} end
    local free = 0
    if ARGV[4] == '1' then free = ARGV[3] end
    if write then
      redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'dir', ARGV[6], 'free', free, 'sold', 0, 'held', 0, 'version', 0)
    end
  elseif tonumber(epoch) < tonumber(ARGV[2]) - 1 then
    return {'moved', epoch}
  elseif tonumber(epoch) < tonumber(ARGV[2]) then
    if write then redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'dir', ARGV[6]) end
  else
    dir = redis.call('HGET', KEYS[1], 'dir') or ''
  end
  local ends, last = now(), redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  if last[2] then ends = math.max(ends, last[2]) end
  return {'placed', epoch or '0', string.format('%.0f', ends), dir}
end
if not epoch then return {'absent'} end
if tonumber(epoch) < tonumber(ARGV[2]) then return {'moved', epoch} end
if op == 'accept' then
  accept(ARGV[3], ARGV[4], ARGV[5])
elseif op == 'clear' then
  local out = redis.call('HGET', KEYS[1], 'out:' .. ARGV[3])
  local seq, units = string.match(out or '', '^(%d+) (%d+)$')
  if seq == ARGV[4] then
    redis.call('HDEL', KEYS[1], 'out:' .. ARGV[3])
    redis.call('HINCRBY', KEYS[1], 'transit', -units)
    redis.call('HINCRBY', KEYS[1], 'version', 1)
  end
elseif op == 'look' then
  lapse(ARGV[3])
  return {'done', redis.call('HGETALL', KEYS[1])}
elseif op == 'pull' then
  local out = redis.call('HGET', KEYS[1], 'out:' .. ARGV[3])
  if out then
    local seq, units = string.match(out, '^(%d+) (%d+)$')
    return {'took', seq, units}
  end
  local want = tonumber(ARGV[4])
  local free = tonumber(redis.call('HGET', KEYS[1], 'free'))
  if free < want then
    lapse(ARGV[6])
    free = tonumber(redis.call('HGET', KEYS[1], 'free'))
  end
  if free == 0 or ARGV[5] == '1' and free < want then
    return {'short', tostring(free), redis.call('HGET', KEYS[1], 'transit') or '0'}
  end
  local units = math.min(free, want)
  if ARGV[5] == '1' then units = math.max(units, math.floor(free / 2)) end
  local seq = redis.call('HINCRBY', KEYS[1], 'seq:' .. ARGV[3], 1)
  redis.call('HSET', KEYS[1], 'out:' .. ARGV[3], seq .. ' ' .. string.format('%.0f', units))
  redis.call('HINCRBY', KEYS[1], 'free', -units)
  redis.call('HINCRBY', KEYS[1], 'transit', units)
  redis.call('HINCRBY', KEYS[1], 'version', 1)
  return {'took', tostring(seq), string.format('%.0f', units)}
end
return {'done'}

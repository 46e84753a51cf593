-- KEYS: 1 the shard, a hash: epoch dir free held sold back more version transit,
--         seq:N out:N in:N for transfers to and from shard N; dir is the
--         directory of the epoch
--       2 reservations, a hash: sale id -> r or l, and units
--       3 when reservations lapse, a sorted set: sale id by ms
--       4 the receipt of the sale, a string that expires
-- All of a shard are in one slot. Numbers stay below 1e14, so that none is ever
-- written with an exponent.

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Gives back the units of reservations whose lease has ended, and forgets those
-- that have been known as lapsed for long enough.
local function lapse(keep)
  local at = now()
  local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', at, 'LIMIT', 0, 200)
  local units = 0
  for _, sale in ipairs(due) do
    local has = redis.call('HGET', KEYS[2], sale)
    if has and string.sub(has, 1, 1) == 'r' then
      units = units + string.sub(has, 2)
      redis.call('HSET', KEYS[2], sale, 'l' .. string.sub(has, 2))
      redis.call('ZADD', KEYS[3], at + keep, sale)
    else
      redis.call('HDEL', KEYS[2], sale)
      redis.call('ZREM', KEYS[3], sale)
    end
  end
  if units > 0 then
    redis.call('HINCRBY', KEYS[1], 'free', units)
    redis.call('HINCRBY', KEYS[1], 'held', -units)
    redis.call('HINCRBY', KEYS[1], 'version', 1)
  end
end

local function receipt(sale, keep)
  local has = redis.call('GET', KEYS[4])
  if has then return has end
  has = redis.call('HGET', KEYS[2], sale)
  if has then
    lapse(keep)
    has = redis.call('HGET', KEYS[2], sale)
  end
  return has
end

local function accept(from, seq, units)
  if (redis.call('HGET', KEYS[1], 'in:' .. from) or '0') + 1 ~= tonumber(seq) then return end
  redis.call('HSET', KEYS[1], 'in:' .. from, seq)
  redis.call('HINCRBY', KEYS[1], 'free', units)
  redis.call('HINCRBY', KEYS[1], 'version', 1)
end

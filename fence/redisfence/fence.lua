-- The guard, before the user's own script. Its key is the last, its three
-- arguments are the last: number, owner, 1 for shared. They are taken off, so
-- that the user's script finds its own where it expects them.
local fenceKey = table.remove(KEYS)
local fenceShared = table.remove(ARGV)
local fenceOwner = table.remove(ARGV)
local fenceValue = table.remove(ARGV)
local fenceHas = redis.call('HMGET', fenceKey, 'token', 'owner')
-- Numbers are compared as text, by length first: a double has 53 bits, and a
-- token may have more. Byte by byte, because < follows the server's locale.
local fenceOrder = 1
if fenceHas[1] then
  fenceOrder = #fenceValue - #fenceHas[1]
  local i = 1
  while fenceOrder == 0 and i <= #fenceValue do
    fenceOrder = string.byte(fenceValue, i) - string.byte(fenceHas[1], i)
    i = i + 1
  end
end
if fenceOrder < 0 or fenceOrder == 0 and fenceOwner ~= fenceHas[2] then
  return redis.error_reply('FENCED ' .. fenceHas[1] .. ' ' .. fenceHas[2])
end
if fenceShared ~= '1' and fenceOrder > 0 then
  redis.call('HSET', fenceKey, 'token', fenceValue, 'owner', fenceOwner)
end

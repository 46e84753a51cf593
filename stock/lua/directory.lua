-- KEYS: the directory of a product. ARGV: what it has to say, what it is to say.
-- Without ARGV it is read. Answers what it says, or whether it was written, and
-- the time in ms.
local t = redis.call('TIME')
local ms = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local text = redis.call('GET', KEYS[1]) or ''
if #ARGV == 0 then return {text, ms} end
if text ~= ARGV[1] then return {'0', ms} end
redis.call('SET', KEYS[1], ARGV[2])
return {'1', ms}

-- guard: how long the server has had its data without a loss.
--
-- KEYS  1 the mark that shows whether data outlived a restart
-- Answers {run id, milliseconds since the loss, version}.
--
-- The mark has the run id of the process that last read it, and the server's
-- time, in seconds, of the last loss of data: the start of a process that found
-- no mark, or that keeps no append-only file. A process that does keep one
-- finds the mark of the process before, and the loss before that process still
-- counts.

local function info(section)
	local fields = {}
	for name, value in string.gmatch(redis.call('INFO', section), '([%w_]+):([^\r\n]*)') do
		fields[name] = value
	end
	return fields
end

local server = info('server')
local run, up = server.run_id, tonumber(server.uptime_in_seconds)
if not run or run == '' or not up then return redis.error_reply('HOLDFAST-GUARD INFO tells no run id or no uptime') end
local time = redis.call('TIME')
local mark = redis.call('GET', KEYS[1])
local before, at
if mark then
	before, at = string.match(mark, '^(%x+) (%d+)$')
	if not at then return redis.error_reply('HOLDFAST-LAYOUT') end
end
if before ~= run then
	if not before or info('persistence').aof_enabled ~= '1' then
		at = string.format('%.0f', time[1] - up)
	end
	redis.call('SET', KEYS[1], run .. ' ' .. at)
end
-- The start and the time of a process have a resolution of a second.
local age = (time[1] - at - 1) * 1000 + math.floor(time[2] / 1000)
return { run, string.format('%.0f', math.max(0, age)), server.redis_version or '' }

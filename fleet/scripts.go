package fleet

import "github.com/redis/go-redis/v9"

// The scripts run in the engine, where several keys or steps must change atomically. They
// use the engine's time, so that the clocks of the processes do not matter, in microseconds
// since 1970. Numbers of that size are exact in a double but not in Lua's default notation,
// so string.format writes them.

// Commands that add come before commands that remove: a full engine refuses a script whose
// first write could need memory, but no later one.

// clock is the start of each script.
const clock = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function whole(n) return string.format('%.0f', n) end
`

// presentScript registers a member and returns the number of members.
//
//	KEYS[1] the members, a sorted set by their last heartbeat
//	ARGV    the member, after how many microseconds a member is removed
//
// Members with a time in the future are from before the engine's clock was set back.
var presentScript = redis.NewScript(clock + `
local ttl = tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], whole(now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now - ttl))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. whole(now), '+inf')
redis.call('PEXPIRE', KEYS[1], whole(ttl / 1000))
return redis.call('ZCARD', KEYS[1])
`)

// pausesScript stores pauses and publishes them.
//
//	KEYS[1] the pauses, a sorted set by their end
//	ARGV    the channel, the sender, the maximum number of pauses, then alternately a key and its remaining time in microseconds
//
// A pause that is already stored with the same end, plus or minus a tenth of a second, is not
// published again: many processes get the same 429 at once. If there are too many, those that end
// first are removed. No pause lasts longer than a day.
var pausesScript = redis.NewScript(clock + `
local news = {}
for i = 4, #ARGV, 2 do
  local ends = now + tonumber(ARGV[i + 1])
  local had = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or 0)
  if math.abs(ends - had) >= 100000 then
    news[#news + 1] = ARGV[i] .. ':' .. ARGV[i + 1]
  end
  if ends > had then
    redis.call('ZADD', KEYS[1], whole(ends), ARGV[i])
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. whole(now + 86400000000), '+inf')
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] then
  redis.call('PEXPIRE', KEYS[1], whole((last[2] - now) / 1000 + 1))
end
if #news > 0 then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. table.concat(news, ' '))
end
return #news
`)

// leaseScript is ratelimit.Ledger.Lease: a request for slots of a rate limit. It returns how many
// slots are leased, how far ahead in microseconds they begin, how many are reserved for the time until
// the next request, and how long that is.
//
//	KEYS[1] when the next slot is, and when the next request should come
//	ARGV    microseconds between two slots, slots wanted, slots used without a lease, how many microseconds ahead slots are leased,
//	        microseconds between two slots of the share, slots needed per second, the shortest rest,
//	        microseconds between two requests, the longest rest, the rest from which on slots are reserved, and the fraction of a slot that the share is owed
var leaseScript = redis.NewScript(clock + `
local gap, ahead, longest = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[9])
local latest = now + ahead
local most = latest + 2 * ahead + gap
local had, asks = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+)$')
local at = math.min(math.max(tonumber(had or '') or now, now), most + longest)
at = math.max(now, math.min(at + gap * ARGV[3], math.max(at, most)))
local begin = at
asks = math.max(now, math.min(tonumber(asks or '') or now, now + longest)) + ARGV[8]
local rest = math.min(math.max(asks - now, tonumber(ARGV[7])), longest)
local slots, reserved = 0, 0
if rest > tonumber(ARGV[10]) then
  local need = math.floor(ARGV[6] * rest / 1000000 + 0.5)
  local room = math.floor(math.max(0, latest - at) / gap)
  reserved = math.min(need, math.max(math.floor(rest / ARGV[5] + ARGV[11]), room))
  at = math.min(at + gap * reserved, most + longest)
end
if at <= latest then
  slots = math.min(tonumber(ARGV[2]), math.floor((latest - at) / gap) + 1)
end
local after = at + gap * slots
redis.call('SET', KEYS[1], string.format('%.2f %.2f', after, asks), 'PX', whole((math.max(after, asks) - now) / 1000 + 1000))
return {slots, math.floor(begin - now), reserved, math.floor(rest)}
`)

// budgetScript is budget.Ledger.Settle: a process's report about a retry budget. It returns how many
// retries are available, in thousandths.
//
//	KEYS[1] level, tokens added by recent requests, time of the last report
//	ARGV    ratio, retries per second, burst, requests, retries
var budgetScript = redis.NewScript(clock + `
local had = redis.call('HMGET', KEYS[1], 'level', 'recent', 'at')
local burst = tonumber(ARGV[3])
local level = tonumber(had[1] or '') or burst
local recent = math.max(tonumber(had[2] or '') or 0, 0)
local took = math.min(math.max(now - (tonumber(had[3] or '') or now), 0) / 1000000, 3600)
local earned = ARGV[1] * ARGV[4]
recent = recent * math.exp(-took / 10) + earned
local full = burst + recent
level = math.min(level + earned + ARGV[2] * took, full)
level = math.max(level - ARGV[5], -full)
if level ~= level or recent ~= recent then -- no number was there
  level, recent = burst, 0
end
redis.call('HSET', KEYS[1], 'level', string.format('%.4f', level), 'recent', string.format('%.4f', recent), 'at', whole(now))
redis.call('PEXPIRE', KEYS[1], 3600000)
return math.floor(level * 1000)
`)

// activePausesScript returns the pauses that have not ended, alternately a key and its remaining time,
// in the same form as in messages.
//
//	KEYS[1] the pauses
//	ARGV    the maximum number
var activePausesScript = redis.NewScript(clock + `
local all = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local left = {}
for i = 1, #all, 2 do
  left[#left + 1] = all[i] .. ':' .. whole(all[i + 1] - now)
end
return table.concat(left, ' ')
`)

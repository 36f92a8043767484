package fleet

import "github.com/redis/go-redis/v9"

// accountScript keeps ratelimit.Buckets for all processes: it processes what one process used and
// learned, and grants its next attempt if there is enough. The functions are those of type Buckets.
// One process at a time is first in line: it gets the next attempt, however many others ask for a
// smaller one. A process that does not ask again in time loses its turn.
//
//	KEYS[1] who is first and when it asked last, a line for how the upstream counts, then a line for each rate limit
//	ARGV    the process, attempts, input and output used, input and output used beyond the expected cost, configured limit and rate,
//	        1 if an attempt is wanted, its input and output, the number of observations, microseconds without an attempt after which
//	        one is sent all the same (0: never), and if only an estimate stops it, what was learned of how the
//	        upstream counts ('' if nothing), then for each
//	        row, kind, model, limit, remaining, microseconds until the reset, level at sending ('' if unknown), order, 1 if rejected, microseconds since sending
//
// It returns 1 if the attempt is granted, the microseconds until the next request, the order of the
// following attempts, what is known of how the upstream counts, and a line for each rate limit.
var accountScript = redis.NewScript(clock + `
local names = {'row', 'kind', 'model', 'limit', 'level', 'at', 'rate', 'nextrate', 'ratesince', 'others', 'fullat', 'ends', 'length', 'free', 'corrected', 'seen', 'taken'}
local all, first, firstat, usage = {}, '-', 0, nil
local fixed, fixedrate, longest = tonumber(ARGV[7]), tonumber(ARGV[8]), 2678400000000
local probe, soon = tonumber(ARGV[13]), tonumber(ARGV[14])
local function within(n, least, most) return math.max(least, math.min(n, most)) end
-- readusage reads estimated and used tokens for each ratio, the mean output and the doubt.
local function readusage(line)
  local u = {}
  for n in string.gmatch(line, '%S+') do u[#u + 1] = tonumber(n) end
  for i = 1, 9, 2 do u[i] = within(u[i], 0, 1e12); u[i + 1] = within(u[i + 1], 0, u[i] * 4) end
  u[11], u[12] = within(u[11], 0, 1e12), within(u[12], 0, 1)
  return u
end
-- bounded makes stored values sensible, whoever wrote them. It reports false for a line that is none.
local function bounded(b)
  if b.row ~= math.floor(b.row) or b.row < 0 or b.row > 255 or not (b.limit > 0 and b.limit <= 1e12) then return false end
  if not ((b.model == 0 or b.model == 1) and (b.kind == 0 or b.kind == 1 or b.kind == 2 or b.kind == 3)) then return false end
  if b.row == 255 then
    if fixed == 0 then return false end
    b.kind, b.model, b.limit, b.rate, b.others, b.fullat, b.ends = 1, 0, fixed, fixedrate, 0, 0, 0
  end
  if b.row ~= 255 and probe == 0 then return false end -- the process does not learn limits
  b.level = within(b.level, 0, b.limit)
  for _, name in ipairs({'at', 'taken', 'seen', 'ratesince'}) do b[name] = math.min(b[name], now) end
  for _, name in ipairs({'fullat', 'ends', 'free'}) do b[name] = math.min(b[name], now + longest) end
  for _, name in ipairs({'rate', 'nextrate', 'others'}) do b[name] = within(b[name], 0, 1e12) end
  b.length = within(b.length, 0, longest)
  return true
end
for line in string.gmatch(redis.call('GET', KEYS[1]) or '', '[^\n]+') do
  local b, i, numbers = {}, 0, 0
  for field in string.gmatch(line, '%S+') do
    i = i + 1
    local n = tonumber(field)
    if names[i] and n and math.abs(n) <= 1e18 then b[names[i]], numbers = n, numbers + 1 end
  end
  if i == #names and numbers == i and #all < 6 and bounded(b) then
    all[#all + 1] = b
  elseif i == 13 and numbers == 12 and string.sub(line, 1, 6) == 'usage ' then
    usage = readusage(string.sub(line, 7))
  elseif i == 3 then
    first, firstat = string.match(line, '^first (%S+) (%S+)$')
    first, firstat = first or '-', tonumber(firstat) or 0
  end
end
local function persecond(b) if b.rate > 0 then return b.rate end return b.limit / 60 end
local function gain(b) return math.max(persecond(b) - b.others, persecond(b) * 0.05) end
local function advance(b)
  local took = (now - b.at) / 1000000
  if took <= 0 then return end
  b.at = now
  if b.model == 0 then
    b.level = math.min(b.limit, b.level + gain(b) * took)
    if b.fullat > 0 and now >= b.fullat then b.level = b.limit end
  elseif b.ends > 0 and now >= b.ends then
    b.level, b.ends, b.free = b.limit, 0, 0
  end
end
local function of(b, attempts, input, output)
  if b.kind == 0 then return attempts elseif b.kind == 2 then return input elseif b.kind == 3 then return output end
  return input + output
end
local function ready(b, cost)
  local need = 0
  if cost > 0 then need = math.min(cost + b.limit * 0.02, b.limit) end
  local short = need - b.level
  if b.model == 0 then
    if short <= 1e-9 then return now end
    local wait = math.ceil(short / gain(b) * 1000000)
    if b.fullat > now then wait = math.min(wait, b.fullat - now) end
    return now + wait
  end
  if short > 1e-9 then return math.max(b.ends, now + 1000) end
  if b.level > b.limit / 2 or cost == 0 then return now end
  return math.max(now, b.free)
end
local function lastprobeat(b) if b.row == 255 or probe == 0 then return math.huge end return b.taken + probe end
local function probeat(b)
  if soon == 0 or probe == 0 or b.row == 255 or b.seen < b.taken or b.kind == 0 or b.level < b.limit * 0.02 then return lastprobeat(b) end
  return b.taken + soon
end
local function outdated(b, cost) return now >= lastprobeat(b) and b.seen < b.taken and ready(b, cost) > now end
local function take(b, cost)
  if b.model == 1 then
    if b.ends == 0 then b.ends = now + math.max(b.length, 1000000) end
    if b.level <= b.limit / 2 and b.level > 0 then
      b.free = math.min(b.ends, math.max(b.free, now) + math.min(cost / b.level, 1) * (b.ends - now))
    end
  elseif b.fullat > 0 and b.rate > 0 then
    b.fullat = math.min(math.max(b.fullat, now) + cost / b.rate * 1000000, now + longest)
  end
  b.level = math.max(0, b.level - cost)
  b.taken = now
end
local function add(b, n) b.level = math.max(0, math.min(b.limit, b.level + n)) end
local function move(b, difference)
  local before = b.level
  add(b, difference)
  b.corrected = b.corrected + b.level - before
  if b.model == 0 then b.others = math.max(0, math.min(persecond(b), b.others - (b.level - before) / 3)) end
end
local function learnreset(b, remaining, reset, took, order)
  b.length = math.max(b.length, reset)
  if b.model == 1 then
    b.ends = now + reset
    b.free = math.min(b.free, b.ends)
    return
  end
  if order >= b.taken then b.fullat = now + reset end
  local used = b.limit - remaining
  if used <= 0 then return end
  if reset == 0 then reset = 1000000 end
  local rate = used / (reset + took) * 1000000
  if now - b.ratesince >= 60000000 then b.rate, b.nextrate, b.ratesince = b.nextrate, 0, now end
  b.nextrate = math.max(b.nextrate, rate)
  b.rate = math.max(b.rate, rate)
end
-- renew begins a window whose end is unknown; since was sent in it already.
local function renew(b, since)
  local before = b.level
  b.level, b.ends, b.free = math.max(0, b.limit - since), 0, 0
  b.corrected = b.corrected + b.level - before
end
if fixed > 0 and not (all[1] and all[1].row == 255) then
  table.insert(all, 1, {row = 255, kind = 1, model = 0, limit = fixed, level = fixed, at = now, rate = fixedrate, nextrate = 0, ratesince = now, others = 0, fullat = 0, ends = 0, length = 0, free = 0, corrected = 0, seen = 0, taken = 0})
end
local sent = {tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])}
for _, b in ipairs(all) do
  advance(b)
  local n = of(b, sent[1], sent[2], sent[3])
  if n > 0 then take(b, n) elseif n < 0 then add(b, -n) end
  if b.row == 255 then add(b, -(ARGV[5] + ARGV[6])) end
end
if ARGV[15] ~= '' then
  local news = {}
  for n in string.gmatch(ARGV[15], '%S+') do news[#news + 1] = tonumber(n) end
  usage = usage or {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  for i = 0, 4 do
    local fade = 0.75 ^ news[3 * i + 1]
    for j = 1, 2 do usage[2 * i + j] = usage[2 * i + j] * fade + news[3 * i + 1 + j] end
  end
  usage[11] = usage[11] * 0.875 ^ news[16] + news[17]
  usage[12] = math.min(1, usage[12] + 0.125 * news[18]) * (1 - 1 / 512) ^ news[19]
end
for i = 16, 15 + 10 * ARGV[12], 10 do
  local row, limit, remaining, reset = tonumber(ARGV[i]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  local kind, model, level, order = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7])
  local b
  for _, each in ipairs(all) do if each.row == row then b = each end end
  if not b and #all < 6 then
    b = {row = row, kind = kind, model = model, limit = limit, level = remaining, at = now, rate = 0, nextrate = 0, ratesince = now, others = 0, fullat = 0, ends = 0, length = 0, free = 0, corrected = 0, seen = order, taken = order}
    all[#all + 1] = b
    if model == 1 and reset == 0 then renew(b, 0) else learnreset(b, remaining, reset, tonumber(ARGV[i + 9]), order) end
  elseif b then
    if b.limit ~= limit or b.model ~= model then
      b.limit, b.model, b.rate, b.nextrate, b.level = limit, model, 0, 0, math.min(b.level, limit)
    end
    local over = model == 1 and reset == 0
    if not over then learnreset(b, remaining, reset, tonumber(ARGV[i + 9]), order) end
    if over then
      if order >= b.seen then
        b.seen = order
        renew(b, level and math.max(0, level + b.corrected - b.level) or 0)
      end
    elseif ARGV[i + 8] == '1' then
      b.seen = math.max(b.seen, order)
      move(b, math.min(0, remaining - b.level))
    elseif order >= b.seen then
      b.seen = order
      local difference = remaining - b.level
      if level then
        local sending = remaining - (level + b.corrected)
        if sending > 0 and difference > 0 then difference = math.min(sending, difference)
        elseif sending < 0 and difference < 0 then difference = math.max(sending, difference)
        else difference = 0 end
      end
      if difference > 0 then difference = difference / 4 end
      if difference ~= 0 then move(b, difference) end
    end
  end
end
local granted, wait = 0, 0
if ARGV[9] == '1' then
  local input, output = tonumber(ARGV[10]), tonumber(ARGV[11])
  local at = now
  for _, b in ipairs(all) do at = math.max(at, math.min(ready(b, of(b, 1, input, output)), probeat(b))) end
  if first ~= '-' and first ~= ARGV[1] and firstat <= now and now - firstat < 150000 then
    wait = math.min(math.max(at - now, 5000), 20000)
  elseif at <= now then
    granted = 1
    first = '-'
    for i = #all, 1, -1 do
      local b, cost = all[i], of(all[i], 1, input, output)
      if outdated(b, cost) then table.remove(all, i) else take(b, cost) end
    end
  else
    first, firstat = ARGV[1], now
    wait = math.min(at - now, 50000)
  end
end
local function whole17(n) return string.format('%.17g', n) end
local lines, reply = {}, {granted, whole(wait), whole(now), ''}
lines[1] = 'first ' .. first .. ' ' .. whole(firstat)
if usage then
  for i, n in ipairs(usage) do usage[i] = whole17(n) end
  reply[4] = table.concat(usage, ' ')
  lines[2] = 'usage ' .. reply[4]
end
local keep = 60000
-- Some minutes outlast a pause between requests. No longer: clients can make keys, and a few attempts learn it again.
if usage then keep = 300000 end
for _, b in ipairs(all) do
  local fields = {}
  for i, name in ipairs(names) do fields[i] = whole17(b[name]) end
  lines[#lines + 1] = table.concat(fields, ' ')
  local function from(at) if at <= 0 then return '-1' end return whole(math.max(at - now, 0)) end
  reply[#reply + 1] = table.concat({b.row, b.kind, b.model, whole17(b.limit), whole17(b.level), whole17(b.rate), whole17(b.others), whole17(b.corrected), from(b.fullat), from(b.ends), from(b.free), whole(b.length)}, ' ')
  keep = math.max(keep, (b.ends - now) / 1000 + 60000, (b.limit - b.level) / persecond(b) * 1000 + 60000)
end
redis.call('SET', KEYS[1], table.concat(lines, '\n'), 'PX', whole(math.min(keep, longest / 1000)))
return reply
`)

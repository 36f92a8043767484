package apierror

import (
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/retryafter"
)

// WaitForm is one form in which error bodies ask for a wait.
type WaitForm struct {
	// Key is the name of a member whose value is the wait. Case, hyphens and underscores do not
	// matter. "" if the form is a phrase in a message.
	Key    string
	Unit   time.Duration // of a number without one
	Phrase string        // precedes the wait, in lower case; a space may be a hyphen or underscore; "" for a Key
	Bare   bool          // after Phrase, a number without a unit is seconds

	Example string // a member, or a message
	Source  string
}

// waitForms are the known forms. A value of a Key may be a number, a duration or a time.
var waitForms = [...]WaitForm{
	{Key: "retryDelay", Unit: time.Second, Example: `"retryDelay": "34.074824224s"`, Source: "`google.rpc.RetryInfo`, Gemini"},
	{Key: "quotaResetDelay", Unit: time.Second, Example: `"quotaResetDelay": "33740.910400305s"`, Source: "Gemini Code Assist, gemini-cli issue 29425"},
	{Key: "quotaResetTimeStamp", Unit: time.Second, Example: `"quotaResetTimeStamp": "2026-03-01T12:00:30Z"`, Source: "Gemini Code Assist, gemini-cli issue 29425"},
	{Key: "retry_after", Unit: time.Second, Example: `"retry_after": 64.57`, Source: "Discord, \"Rate Limits\""},
	{Key: "retry_after_seconds", Unit: time.Second, Example: `"retry_after_seconds": "30"`, Source: "API Evangelist, rate limit response structure"},
	{Key: "retryAfterSec", Unit: time.Second, Example: `"retryAfterSec": 30`, Source: "Belgif, problem type `tooManyRequests`"},
	{Key: "retryAfter", Unit: time.Second, Example: `"retryAfter": "2026-03-01T12:00:30Z"`, Source: "Belgif, problem type `tooManyRequests`"},
	{Key: "retry_after_ms", Unit: time.Millisecond, Example: `"retry_after_ms": 1500`, Source: "Matrix specification, `M_LIMIT_EXCEEDED`"},
	{Key: "resets_in_seconds", Unit: time.Second, Example: `"resets_in_seconds": 30`, Source: "OpenAI Codex, `usage_limit_reached`"},
	{Key: "resets_at", Unit: time.Second, Example: `"resets_at": 1772366430`, Source: "OpenAI Codex, `usage_limit_reached`"},
	{Key: "reset_after_seconds", Unit: time.Second, Example: `"reset_after_seconds": 30`, Source: "OpenAI Codex, usage API: axusage `types/codex.ts`"},
	{Key: "reset_at", Unit: time.Second, Example: `"reset_at": "2026-03-01T12:00:30.000Z"`, Source: "OmniRoute pull request 14188"},
	{Key: "rateLimitNext", Unit: time.Second, Example: `"rateLimitNext": "2026-03-01T12:00:30.123456Z"`, Source: "Akamai, mTLS Edge Truststore API, \"429\""},
	{Key: "X-RateLimit-Reset", Unit: time.Second, Example: `"X-RateLimit-Reset": "1772366430000"`, Source: "OpenRouter, `error.metadata.headers`: dirge pull request 719"},

	{Phrase: "try again in", Example: "Please try again in 1m30s", Source: "OpenAI, Groq"},
	{Phrase: "try again after", Example: "try again after 30 seconds", Source: "OpenAI"},
	{Phrase: "retry in", Example: "Please retry in 36.4s", Source: "Gemini"},
	{Phrase: "retry after", Bare: true, Example: "Please retry after 6 seconds", Source: "Azure OpenAI; QwenPaw issue 4515 (\"please retry after 300 seconds\")"},
	{Phrase: "reset after", Example: "It will reset after 27h41m36s", Source: "Gemini Code Assist, OmniRoute issue 858"},
	{Phrase: "resets in", Example: "Individual limit reached. Resets in 9h22m20s.", Source: "Gemini Code Assist, gemini-cli issue 29425"},
	{Phrase: "please wait", Example: "Please wait 10 hours 58 minutes before trying again", Source: "GitHub Copilot, vscode-copilot-release issue 3519"},
	{Phrase: "submit the request after", Example: "You can submit the request after 49 seconds", Source: "Akamai, mTLS Edge Truststore API, \"429\""},
}

// WaitForms returns the known forms of a wait. The slice belongs to the caller.
func WaitForms() []WaitForm { return append([]WaitForm(nil), waitForms[:]...) }

// waitKey is what a key says about its value. The zero value means that it is no wait.
type waitKey struct {
	unit  time.Duration // of a number without one
	known bool          // it is one of waitForms
}

const maxKey = 48

// knownKeys are the keys of waitForms, as plain writes them.
var knownKeys = func() map[string]time.Duration {
	all := map[string]time.Duration{}
	for i := range waitForms {
		if f := &waitForms[i]; f.Key != "" {
			var b [maxKey]byte
			all[string(plain(b[:0], []byte(f.Key)))] = f.Unit
		}
	}
	return all
}()

// plain appends key to b in lower case and without what separates its words.
func plain(b, key []byte) []byte {
	for _, c := range key {
		switch {
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		case c == '_' || c == '-':
			continue
		}
		b = append(b, c)
	}
	return b
}

// keyOfWait returns what a key says about its value. A key that is not known counts as one of a wait
// if its words are about a retry or a reset, and about time.
func keyOfWait(key []byte) waitKey {
	if len(key) > maxKey {
		return waitKey{}
	}
	var b [maxKey]byte
	if unit, known := knownKeys[string(plain(b[:0], key))]; known {
		return waitKey{unit, true}
	}
	w := keyWords{unit: time.Second}
	for len(key) > 0 {
		n := wordLength(key)
		w.add(key[:n])
		key = key[n:]
	}
	if w.counts || !w.event || !w.time {
		return waitKey{}
	}
	return waitKey{unit: w.unit}
}

// wordLength returns the length of the first word of a key: quota, Reset, or the separator.
func wordLength(key []byte) int {
	n := 1
	for n < len(key) && isLetter(key[n]) && isLetter(key[n-1]) && !(isUpper(key[n]) && !isUpper(key[n-1])) {
		n++
	}
	return n
}

// keyWords is what the words of a key are about.
type keyWords struct {
	event, time, counts bool
	unit                time.Duration
}

func (w *keyWords) add(word []byte) {
	var b [maxKey]byte
	switch string(plain(b[:0], word)) {
	case "reset", "resets":
		w.event, w.time = true, true
	case "retry", "retryafter", "wait", "cooldown", "backoff", "replenish", "replenished", "renew", "renewal", "renews", "available", "unblock", "unblocked", "next":
		w.event = true
	case "after", "in", "at", "on", "until", "delay", "time", "timestamp", "date", "duration", "sec", "secs", "second", "seconds", "s":
		w.time = true
	case "ms", "msec", "millis", "millisecond", "milliseconds":
		w.time, w.unit = true, time.Millisecond
	case "min", "mins", "minute", "minutes":
		w.time, w.unit = true, time.Minute
	case "hour", "hours":
		w.time, w.unit = true, time.Hour
	case "max", "count", "attempt", "attempts", "policy", "url", "percent", "window", "limits":
		w.counts = true
	}
}

// message processes a text for humans.
func (s *scanner) message(v []byte, whole bool) {
	if len(v) > s.messages {
		v, whole = v[:s.messages], false
	}
	s.messages -= len(v)
	s.found.Exhausted = s.found.Exhausted || s.list.hasText(v)
	s.found.TooLarge = s.found.TooLarge || s.list.isTooLarge(v, true)
	known := false
	for i := range waitForms {
		if f := &waitForms[i]; f.Phrase != "" {
			for rest := v; ; {
				at := indexPhrase(rest, f.Phrase)
				if at < 0 {
					break
				}
				rest = rest[at+len(f.Phrase):]
				if d, ok := s.spoken(rest, whole, f.Bare); ok {
					s.found.add(d)
					known = true
				}
			}
		}
	}
	if !known {
		s.guessFrom(v, whole)
	}
}

// indexPhrase is like indexFold, but a space of the phrase may be a hyphen or an underscore in b.
func indexPhrase(b []byte, phrase string) int {
	for from := 0; ; {
		i := indexFold(b[from:], phrase[:strings.IndexByte(phrase, ' ')])
		if i < 0 || from+i+len(phrase) > len(b) {
			return -1
		}
		from += i
		n := 0
		for n < len(phrase) && (b[from+n]|0x20 == phrase[n] || phrase[n] == ' ' && (b[from+n] == '-' || b[from+n] == '_')) {
			n++
		}
		if n == len(phrase) {
			return from
		}
		from++
	}
}

// fillers may stand between a phrase and its wait.
var fillers = [...]string{" ", ":", "=", "\"", "\\", "about ", "approximately ", "at least ", "another ", "the next "}

// spoken parses the wait after a phrase; bare means that seconds need no unit.
func (s *scanner) spoken(b []byte, whole, bare bool) (time.Duration, bool) {
	for i := 0; i < len(fillers); i++ {
		if len(b) >= len(fillers[i]) && equalFold(b[:len(fillers[i])], fillers[i]) {
			b, i = b[len(fillers[i]):], -1
		}
	}
	d, _, ok := retryafter.CutDuration(b, whole)
	if !ok && bare && whole {
		n := 0
		for n < len(b) && (isDigit(b[n]) || b[n] == '.' && n+1 < len(b) && isDigit(b[n+1])) {
			n++
		}
		if n > 0 && n <= maxBare && (n == len(b) || !isAlnum(b[n]) && b[n] != ' ') {
			return retryafter.Parse(b[:n], nil, time.Time{})
		}
	}
	return d, ok
}

// maxBare is the longest number without a unit that is seconds, in bytes: a longer one may be a time.
const maxBare = 7

// nearby is how far, in bytes, one of near may be from a duration.
const nearby = 64

// near are words that make a duration a wait, in lower case. This is the rule for what waitForms does
// not have: "You can send more in 30 seconds: quota exceeded". A window counts too, as in "5 requests
// per 60 seconds": after it, the limit is renewed.
var near = [...]string{"quota", "limit", "reset", "retry", "again", "wait", "throttl", "cool", "renew", "replenish", "refill", "available", "限", "重试", "重置", "再试", "再試行"}

// guessFrom adds the longest duration or time in a message that is near a word of near.
func (s *scanner) guessFrom(v []byte, whole bool) {
	for i := 0; i < len(v); i++ {
		if !startsQuantity(v, i) {
			continue
		}
		if !s.mayParse() {
			return
		}
		d, rest, ok := retryafter.CutDuration(v[i:], whole)
		end := len(v) - len(rest)
		if !ok {
			if d, end, ok = s.timeAt(v, i); !ok {
				continue
			}
		}
		if d > s.guess.Wait && isNear(v, i, end) {
			s.guess.add(d)
		}
		i = end - 1
	}
}

// startsQuantity reports whether a number, or a word for 1, may begin at v[i].
func startsQuantity(v []byte, i int) bool {
	if i > 0 && (isAlnum(v[i-1]) || strings.IndexByte(".-,:/$+", v[i-1]) >= 0) {
		return false
	}
	rest := v[i:]
	return isDigit(v[i]) || len(rest) > 4 && (equalFold(rest[:2], "a ") || equalFold(rest[:3], "an ") || equalFold(rest[:4], "one "))
}

// maxAway bounds a guessed time: a number or a date beyond it means something else.
const maxAway = 400 * 24 * time.Hour

// timeAt returns how long it is until the time at v[i], if one stands there that is not past. It may
// have up to four words.
func (s *scanner) timeAt(v []byte, i int) (d time.Duration, end int, ok bool) {
	digits := 0
	for i+digits < len(v) && isDigit(v[i+digits]) {
		digits++
	}
	end = i + digits
	if digits == len("1772366430") || digits == len("1772366430000") {
		d, ok = retryafter.ParseReset(v[i:end], time.Second, s.date, s.now)
		return d, end, ok && d > 0 && d < maxAway
	}
	if digits != len("2026") || end == len(v) || v[end] != '-' {
		return 0, 0, false
	}
	s.parses -= costOfTime
	for words := 0; words < 4 && end < len(v); words++ {
		for end++; end < len(v) && v[end] != ' ' && strings.IndexByte("\"'),;|\\", v[end]) < 0; end++ {
		}
		text := v[i:end]
		if text[len(text)-1] == '.' {
			text = text[:len(text)-1]
		}
		if len(text) > maxTime {
			break
		}
		if got, valid := retryafter.ParseReset(text, time.Second, s.date, s.now); valid && got > 0 && got < maxAway {
			d, ok = got, true
		}
	}
	return d, end, ok
}

// costOfTime is what a time with a date costs, in other numbers: it is tried in many formats.
const costOfTime = 8

// maxTime is the longest time in a message, in bytes.
const maxTime = 40

// isNear reports whether one of near is close to v[from:to], and the text does not say that it is past.
func isNear(v []byte, from, to int) bool {
	around := v[max(from-nearby, 0):min(to+nearby, len(v))]
	if after := v[to:]; len(after) >= 4 && equalFold(after[:4], " ago") {
		return false
	}
	for _, word := range near {
		if indexFold(around, word) >= 0 {
			return true
		}
	}
	return false
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

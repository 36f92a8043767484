package retryafter

import "time"

// Name is what the words of a name are about: of a header, or of a member of an error body. It is the rule
// for names that no table has.
type Name struct {
	Unit time.Duration // of a number without one

	event  bool // a retry, a reset, or when something is allowed
	time   bool
	wait   bool // a time by itself, unless there are words about something else
	counts bool // how many or how much, and not when
	other  bool // something else
	reset  bool
	left   bool // what remains
}

const maxWord = 48

// ReadName reads the words of a name: quota_reset_time, waitTimeMs, X-Retry-In.
func ReadName(name []byte) Name {
	w := Name{Unit: time.Second}
	for len(name) > 0 {
		n := wordLength(name)
		w.add(name[:n])
		name = name[n:]
	}
	return w
}

// IsWait reports whether the value of such a name is a wait.
func (w Name) IsWait() bool {
	return !w.counts && !w.left && (w.event && w.time || w.wait && (w.time || !w.other))
}

// IsUnit reports whether the name only says in what its value is counted, or when it is.
func (w Name) IsUnit() bool {
	return w.time && !w.event && !w.wait && !w.counts && !w.other && !w.left
}

// IsEvent reports whether the name is about a retry or a reset, so that a date is a wait.
func (w Name) IsEvent() bool { return w.event && !w.counts && !w.left }

// In returns the name of an object whose member is counted in that unit.
func (w Name) In(unit time.Duration) Name {
	w.Unit, w.time = unit, true
	return w
}

// wordLength returns the length of the first word of a name: quota, Reset, or the separator.
func wordLength(key []byte) int {
	n := 1
	for n < len(key) && isLetter(key[n]) && isLetter(key[n-1]) && !(isUpper(key[n]) && !isUpper(key[n-1])) {
		n++
	}
	return n
}

func (w *Name) add(word []byte) {
	var b [maxWord]byte
	if len(word) > maxWord {
		w.other = true
		return
	}
	switch string(AppendPlain(b[:0], word)) {
	case "", "x":
	case "reset", "resets":
		w.event, w.time, w.reset = true, true, true
	case "remaining", "left":
		w.left = true
	case "retryafterseconds":
		w.wait = true
	case "retryafterms":
		w.wait, w.Unit = true, time.Millisecond
	case "wait", "cooldown", "backoff", "retryafter", "eta":
		w.wait = true
	case "retry", "again", "replenish", "replenished", "renew", "renewal", "renews", "available", "next", "allowed",
		"block", "blocked", "unblock", "unblocked", "ban", "banned", "lock", "locked", "lockout", "unlock", "unlocks", "unlocked",
		"limited", "throttle", "throttled", "suspended", "penalty", "estimated", "cool":
		w.event = true
	case "after", "in", "at", "on", "for", "until", "delay", "time", "timestamp", "date", "duration", "sec", "secs", "second", "seconds", "s":
		w.time = true
	case "ms", "msec", "millis", "millisecond", "milliseconds":
		w.time, w.Unit = true, time.Millisecond
	case "nanos", "ns":
		w.time, w.Unit = true, time.Nanosecond
	case "min", "mins", "minute", "minutes":
		w.time, w.Unit = true, time.Minute
	case "hour", "hours":
		w.time, w.Unit = true, time.Hour
	case "max", "count", "attempt", "attempts", "policy", "url", "percent", "window", "limits", "factor", "multiplier", "initial", "base", "per":
		w.counts = true
	default:
		w.other = true
	}
}

// AppendPlain appends name to b in lower case and without what separates its words: _, - and spaces.
func AppendPlain(b, name []byte) []byte {
	for _, c := range name {
		switch {
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		case c == '_' || c == '-' || c == ' ':
			continue
		}
		b = append(b, c)
	}
	return b
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

package apierror

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/retryafter"
)

// waitKey is what a key says about its value. The zero value means that it is no wait.
type waitKey struct {
	unit  time.Duration // of a number without one
	known bool          // it is one of waitForms
	dated bool          // only a date is a wait, as in next_retry, and a number is something else
}

// takes reports whether a value of such a key can be a wait.
func (w waitKey) takes(value []byte) bool { return !w.dated || retryafter.StartsDate(value) }

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
		case c == '_' || c == '-' || c == ' ':
			continue
		}
		b = append(b, c)
	}
	return b
}

// keyOfWait returns what a key says about its value. A key that is not known counts as one of a wait
// if its words are about a retry or a reset, and about time. outer is the key of the object that the key
// is in: retry_after with the members seconds and nanos.
func keyOfWait(outer, key []byte) waitKey {
	if len(key) > maxKey || len(outer) > maxKey {
		return waitKey{}
	}
	var b [maxKey]byte
	if unit, known := knownKeys[string(plain(b[:0], key))]; known {
		return waitKey{unit: unit, known: true}
	}
	w := keyWords{unit: time.Second}
	w.addAll(key)
	if w.isUnit() && len(outer) > 0 {
		unit := w.unit
		if _, known := knownKeys[string(plain(b[:0], outer))]; known {
			return waitKey{unit: unit, known: true}
		}
		w = keyWords{time: true}
		w.addAll(outer)
		w.unit = unit
	}
	switch {
	case w.isWait():
		return waitKey{unit: w.unit}
	case w.event && !w.counts:
		return waitKey{unit: w.unit, dated: true}
	}
	return waitKey{}
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
	event  bool // a retry, a reset, or when something is allowed
	time   bool
	wait   bool // a time by itself, unless there are words about something else
	counts bool // how many or how much, and not when
	other  bool // something else
	unit   time.Duration
}

// isWait reports whether the value of such a key is a wait.
func (w *keyWords) isWait() bool {
	return !w.counts && (w.event && w.time || w.wait && (w.time || !w.other))
}

// isUnit reports whether the key only says in what its value is counted, or when it is.
func (w *keyWords) isUnit() bool { return w.time && !w.event && !w.wait && !w.counts && !w.other }

func (w *keyWords) addAll(key []byte) {
	for len(key) > 0 {
		n := wordLength(key)
		w.add(key[:n])
		key = key[n:]
	}
}

func (w *keyWords) add(word []byte) {
	var b [maxKey]byte
	switch string(plain(b[:0], word)) {
	case "":
	case "reset", "resets":
		w.event, w.time = true, true
	case "wait", "cooldown", "backoff", "retryafter", "eta":
		w.wait = true
	case "retry", "again", "replenish", "replenished", "renew", "renewal", "renews", "available", "next", "allowed",
		"block", "blocked", "unblock", "unblocked", "ban", "banned", "lock", "locked", "lockout", "unlock", "unlocks", "unlocked",
		"limited", "throttle", "throttled", "suspended", "penalty", "estimated", "cool":
		w.event = true
	case "after", "in", "at", "on", "for", "until", "delay", "time", "timestamp", "date", "duration", "sec", "secs", "second", "seconds", "s":
		w.time = true
	case "ms", "msec", "millis", "millisecond", "milliseconds":
		w.time, w.unit = true, time.Millisecond
	case "nanos", "ns":
		w.time, w.unit = true, time.Nanosecond
	case "min", "mins", "minute", "minutes":
		w.time, w.unit = true, time.Minute
	case "hour", "hours":
		w.time, w.unit = true, time.Hour
	case "max", "count", "attempt", "attempts", "policy", "url", "percent", "window", "limits", "factor", "multiplier", "initial", "base", "per":
		w.counts = true
	default:
		w.other = true
	}
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

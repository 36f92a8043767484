package retryafter

import (
	"bytes"
	"time"
)

// StartsDate reports whether b may start with a date: with a year and a hyphen, a day and a month, or the
// name of a day or a month.
func StartsDate(b []byte) bool {
	if len(b) < len("1 Jan 2006") {
		return false
	}
	if isDigit(b[0]) {
		n := 1
		for n < len(b) && isDigit(b[n]) {
			n++
		}
		return n == 4 && n < len(b) && b[n] == '-' || n <= 2 && n < len(b) && b[n] == ' ' && isName(b[n+1:], &months)
	}
	return isName(b, &months) || isName(b, &days)
}

var (
	months = [...]string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	days   = [...]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun", "", "", "", "", ""}
)

// isName reports whether b starts with a name of three letters, and a space or a comma is next.
func isName(b []byte, names *[12]string) bool {
	if len(b) < 4 || !isLetter(b[0]) || b[3] != ' ' && b[3] != ',' {
		return false
	}
	for _, name := range names {
		if name != "" && equalName(b[:3], []byte(name)) {
			return true
		}
	}
	return false
}

// CutClock parses the time of a day at the start of b, and returns how long it is until then: 3pm, 10:57 PM
// GMT-3, 18:05 UTC. It is UTC if it has no offset to it. If certain is false, it needs am or pm or a zone,
// since it could be a duration. date and now are those of Parse.
func CutClock(b []byte, certain bool, date []byte, now time.Time) (d time.Duration, rest []byte, ok bool) {
	hour, rest, ok := cutDigits(b, 2)
	if !ok {
		return 0, b, false
	}
	var parts [2]time.Duration // minutes and seconds
	for i := range parts {
		if len(rest) < 3 || rest[0] != ':' {
			break
		}
		n, after, valid := cutDigits(rest[1:], 2)
		if !valid {
			return 0, b, false
		}
		parts[i], rest = n, after
	}
	isTime := certain && len(b)-len(rest) > 2 // 12:30, and not 12
	if half, after := cutHalf(rest); half >= 0 {
		if hour == 12 {
			hour = 0
		}
		hour, rest, isTime = hour+half, after, true
	}
	offset, rest, zone := cutZone(rest)
	if !isTime && !zone || hour > 24 || parts[0] > 59 || parts[1] > 60 {
		return 0, b, false
	}
	if sent, valid := parseDate(date); valid {
		now = sent
	}
	now = now.UTC()
	midnight := now.Truncate(24 * time.Hour)
	at := midnight.Add(hour*time.Hour + parts[0]*time.Minute + parts[1]*time.Second - offset)
	for at.Before(now) {
		at = at.Add(24 * time.Hour)
	}
	if earlier := at.Add(-24 * time.Hour); !earlier.Before(now) {
		at = earlier
	}
	return at.Sub(now), rest, true
}

// cutHalf parses am or pm, and returns how many hours to add; -1 if there is neither.
func cutHalf(b []byte) (hours time.Duration, rest []byte) {
	b = bytes.TrimPrefix(b, []byte(" "))
	for _, half := range [...]struct {
		name  string
		hours time.Duration
	}{{"am", 0}, {"pm", 12}, {"a.m.", 0}, {"p.m.", 12}} {
		n := len(half.name)
		if len(b) >= n && bytes.EqualFold(b[:n], []byte(half.name)) && (n == len(b) || !isLetter(b[n])) {
			return half.hours, b[n:]
		}
	}
	return -1, b
}

// cutZone parses UTC, GMT or Z with an offset.
func cutZone(b []byte) (offset time.Duration, rest []byte, ok bool) {
	rest = bytes.TrimPrefix(b, []byte(" "))
	for _, name := range [...]string{"UTC", "GMT", "Z"} {
		if after, found := bytes.CutPrefix(rest, []byte(name)); found && (len(after) == 0 || !isLetter(after[0])) {
			rest, ok = after, true
			break
		}
	}
	if !ok {
		return 0, b, false
	}
	if len(rest) < 2 || rest[0] != '+' && rest[0] != '-' {
		return 0, rest, true
	}
	sign := time.Duration(1)
	if rest[0] == '-' {
		sign = -1
	}
	hours, after, valid := cutDigits(rest[1:], 2)
	if !valid {
		return 0, rest, true
	}
	offset, rest = hours*time.Hour, after
	if len(rest) > 2 && rest[0] == ':' {
		if minutes, after, valid := cutDigits(rest[1:], 2); valid {
			offset, rest = offset+minutes*time.Minute, after
		}
	}
	return sign * offset, rest, true
}

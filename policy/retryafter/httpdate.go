package retryafter

import "time"

// The three formats of RFC 9110 section 5.6.7. A digit stands for itself and any other letter for
// its kind:
//
//	Sun, 06 Nov 1994 08:49:37 GMT    IMF-fixdate
//	Sunday, 06-Nov-94 08:49:37 GMT   RFC 850
//	Sun Nov  6 08:49:37 1994         asctime
const (
	days      = "SunMonTueWedThuFriSat"
	months    = "JanFebMarAprMayJunJulAugSepOctNovDec"
	clockLen  = len("08:49:37")
	fixLen    = len("Sun, 06 Nov 1994 08:49:37 GMT")
	ascLen    = len("Sun Nov  6 08:49:37 1994")
	rfc850Len = len(", 06-Nov-94 08:49:37 GMT") // after the day's name
)

var longDays = [...]string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}

// parseDate parses an HTTP date to Unix seconds. now only determines the century of a two-digit
// year. It is as strict as RFC 9110, but it does not check whether the day name matches the date. A
// leap second becomes the next second. It does not allocate.
func parseDate(b []byte, now time.Time) (int64, bool) {
	switch {
	case len(b) == fixLen && b[3] == ',':
		return parseFixdate(b)
	case len(b) == ascLen && b[3] == ' ':
		return parseAsctime(b)
	}
	return parseRFC850(b, now)
}

// parseFixdate parses the format that senders must use. len(b) == fixLen.
func parseFixdate(b []byte) (int64, bool) {
	ok := indexName(days, b[:3]) >= 0 && b[4] == ' ' && b[7] == ' ' && b[11] == ' ' && b[16] == ' ' && string(b[25:]) == " GMT"
	day, month, year := number(b[5:7]), indexName(months, b[8:11]), number(b[12:16])
	return unixOf(ok, year, month, day, b[17:17+clockLen])
}

// parseAsctime parses the C library's format. len(b) == ascLen.
func parseAsctime(b []byte) (int64, bool) {
	ok := indexName(days, b[:3]) >= 0 && b[7] == ' ' && b[10] == ' ' && b[19] == ' '
	day := b[8:10]
	if day[0] == ' ' {
		day = day[1:]
	}
	return unixOf(ok, number(b[20:]), indexName(months, b[4:7]), number(day), b[11:11+clockLen])
}

// parseRFC850 parses the format with the long day name and the short year.
func parseRFC850(b []byte, now time.Time) (int64, bool) {
	n := len(b) - rfc850Len
	if n < 0 || !isLongDay(b[:n]) {
		return 0, false
	}
	b = b[n:]
	ok := b[0] == ',' && b[1] == ' ' && b[4] == '-' && b[8] == '-' && b[11] == ' ' && string(b[20:]) == " GMT"
	year := number(b[9:11])
	if !ok || year < 0 {
		return 0, false
	}
	// A year more than 50 years ahead is the last past year with these digits.
	thisYear := now.UTC().Year()
	year += thisYear - thisYear%100
	if year > thisYear+50 {
		year -= 100
	} else if year <= thisYear-50 {
		year += 100
	}
	return unixOf(true, year, indexName(months, b[5:8]), number(b[2:4]), b[12:12+clockLen])
}

func isLongDay(b []byte) bool {
	for _, d := range longDays {
		if string(b) == d {
			return true
		}
	}
	return false
}

// unixOf combines a date. month counts from 0, and a negative part could not be parsed. If ok is
// false, it returns false.
func unixOf(ok bool, year, month, day int, clock []byte) (int64, bool) {
	h, m, s := number(clock[0:2]), number(clock[3:5]), number(clock[6:8])
	if !ok || clock[2] != ':' || clock[5] != ':' || year < 0 || month < 0 || day < 1 ||
		h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60 {
		return 0, false
	}
	t := time.Date(year, time.Month(month+1), day, 0, 0, 0, 0, time.UTC)
	if t.Day() != day { // 31 Feb would become a day in March
		return 0, false
	}
	return t.Unix() + int64(h*3600+m*60+s), true
}

// indexName returns the index of a three-letter name in a list of such names, or -1.
func indexName(list string, name []byte) int {
	for i := 0; i < len(list); i += 3 {
		if list[i:i+3] == string(name) {
			return i / 3
		}
	}
	return -1
}

// number parses digits; it returns -1 for anything else. At most 4 digits are passed.
func number(b []byte) int {
	n := 0
	for _, c := range b {
		if !isDigit(c) {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

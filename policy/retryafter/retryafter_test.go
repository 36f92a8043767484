package retryafter

import (
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

var someDay = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:00 GMT"
	for _, tc := range []struct {
		name, value, date string
		want              time.Duration
		bad               bool
	}{
		{name: "seconds", value: "120", want: 120 * time.Second},
		{name: "no seconds", value: "0", want: 0},
		{name: "leading zeros", value: "007", want: 7 * time.Second},
		{name: "space around", value: " \t5 ", want: 5 * time.Second},
		{name: "largest that fits", value: "9223372036", want: 9223372036 * time.Second},
		{name: "one more", value: "9223372037", want: backoff.Forever},
		{name: "far too large", value: "99999999999999999999999999999999", want: backoff.Forever},
		{name: "fraction", value: "3.5", want: 3500 * time.Millisecond},
		{name: "fraction of a nanosecond is rounded up", value: "0.0000000001", want: 1},
		{name: "nothing beyond a nanosecond", value: "1.0000000010", want: time.Second + 1},
		{name: "fraction of zero", value: "2.000", want: 2 * time.Second},
		{name: "fraction of too much", value: "9223372037.5", want: backoff.Forever},
		{name: "fraction that overflows", value: "9223372036.9", want: backoff.Forever},
		{name: "fixdate against Date", value: "Sun, 01 Mar 2026 12:00:30 GMT", date: date, want: 30 * time.Second},
		{name: "RFC 850 against Date", value: "Sunday, 01-Mar-26 12:00:30 GMT", date: date, want: 30 * time.Second},
		{name: "asctime against Date", value: "Sun Mar  1 12:00:30 2026", date: date, want: 30 * time.Second},
		{name: "asctime with a two-digit day", value: "Wed Mar 11 12:00:00 2026", date: date, want: 240 * time.Hour},
		{name: "Date in another format", value: "Sun, 01 Mar 2026 12:00:30 GMT", date: "Sun Mar  1 12:00:00 2026", want: 30 * time.Second},
		{name: "skewed clock", value: "Sun, 01 Mar 2020 12:00:30 GMT", date: "Sun, 01 Mar 2020 12:00:00 GMT", want: 30 * time.Second},
		{name: "without Date", value: "Sun, 01 Mar 2026 12:01:00 GMT", want: time.Minute},
		{name: "Date is garbage", value: "Sun, 01 Mar 2026 12:01:00 GMT", date: "yesterday", want: time.Minute},
		{name: "the past", value: "Sun, 01 Mar 2026 11:00:00 GMT", date: date, want: 0},
		{name: "a second ago", value: "Sun, 01 Mar 2026 11:59:59 GMT", date: date, want: 0},
		{name: "the past without Date", value: "Sun, 01 Mar 2026 11:00:00 GMT", want: 0},
		{name: "year 9999", value: "Fri, 31 Dec 9999 23:59:59 GMT", date: date, want: backoff.Forever},
		{name: "year 9999 without Date", value: "Fri, 31 Dec 9999 23:59:59 GMT", want: backoff.Forever},
		{name: "leap second", value: "Sun, 01 Mar 2026 12:00:60 GMT", date: date, want: time.Minute},
		{name: "leap day", value: "Thu, 29 Feb 2024 00:00:01 GMT", date: "Thu, 29 Feb 2024 00:00:00 GMT", want: time.Second},
		{name: "RFC 850 year of last century", value: "Sunday, 06-Nov-94 08:49:37 GMT", date: "Sunday, 06-Nov-94 08:49:36 GMT", want: time.Second},
		{name: "RFC 850 across a century", value: "Friday, 01-Jan-99 00:00:00 GMT", want: 0},
		{name: "empty", bad: true},
		{name: "blank", value: "  ", bad: true},
		{name: "negative", value: "-1", bad: true},
		{name: "plus", value: "+1", bad: true},
		{name: "point without a fraction", value: "1.", bad: true},
		{name: "fraction without seconds", value: ".5", bad: true},
		{name: "two points", value: "1.5.0", bad: true},
		{name: "fraction with a unit", value: "1.5s", bad: true},
		{name: "unit", value: "5s", bad: true},
		{name: "two values", value: "5, 6", bad: true},
		{name: "hex", value: "0x10", bad: true},
		{name: "word", value: "soon", bad: true},
		{name: "other zone", value: "Sun, 01 Mar 2026 12:00:30 CET", bad: true},
		{name: "RFC 850 in another zone", value: "Sunday, 01-Mar-26 12:00:30 CET", bad: true},
		{name: "asctime with a zone", value: "Sun Mar  1 12:00:30 2026 GMT", bad: true},
		{name: "offset", value: "Sun, 01 Mar 2026 12:00:30 +0000", bad: true},
		{name: "day of the month that is not", value: "Tue, 31 Feb 2026 12:00:00 GMT", bad: true},
		{name: "no leap year", value: "Sun, 29 Feb 2026 12:00:00 GMT", bad: true},
		{name: "day 0", value: "Sun, 00 Mar 2026 12:00:00 GMT", bad: true},
		{name: "hour 24", value: "Sun, 01 Mar 2026 24:00:00 GMT", bad: true},
		{name: "minute 60", value: "Sun, 01 Mar 2026 12:60:00 GMT", bad: true},
		{name: "second 61", value: "Sun, 01 Mar 2026 12:00:61 GMT", bad: true},
		{name: "signs in numbers", value: "Sun, 01 Mar 2026 12:+1:00 GMT", bad: true},
		{name: "no such month", value: "Sun, 01 Mai 2026 12:00:00 GMT", bad: true},
		{name: "month across two names", value: "Sun, 01 anF 2026 12:00:00 GMT", bad: true},
		{name: "no such day", value: "Sum, 01 Mar 2026 12:00:00 GMT", bad: true},
		{name: "cut off", value: "Sun, 01 Mar 2026 12:00:00", bad: true},
		{name: "RFC 850 with a short day", value: "Sun, 01-Mar-26 12:00:30 GMT", bad: true},
		{name: "RFC 850 with a letter in the year", value: "Sunday, 01-Mar-2x 12:00:30 GMT", bad: true},
		{name: "ISO date", value: "2026-03-01T12:00:00Z", bad: true},
	} {
		got, ok := Parse([]byte(tc.value), []byte(tc.date), someDay)
		if ok == tc.bad || got != tc.want {
			t.Errorf("%s: %v, %v; want %v", tc.name, got, ok, tc.want)
		}
	}
}

// The local clock may be between two seconds; the wait must reach the date.
func TestRetryAfterDateIsNeverEarly(t *testing.T) {
	now := someDay.Add(300 * time.Millisecond)
	until := someDay.Add(5 * time.Second)
	got, ok := Parse([]byte(until.Format(http.TimeFormat)), nil, now)
	if !ok || now.Add(got).Before(until) {
		t.Errorf("%v, %v: ends %v before the date", got, ok, until.Sub(now.Add(got)))
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "0", "", "-1", "99999999999999999999", "Sun, 06 Nov 1994 08:49:37 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sun, 31 Feb 2026 12:00:00 GMT", "Sat, 31 Dec 2016 23:59:60 GMT", ", 06-Nov-94 08:49:37 GMT"} {
		f.Add([]byte(s), []byte("Sun, 06 Nov 1994 08:49:36 GMT"), int64(784111776))
	}
	f.Fuzz(func(t *testing.T, value, date []byte, unix int64) {
		now := time.Unix(unix%(1<<38), 0)
		d, ok := Parse(value, date, now)
		if d < 0 || !ok && d != 0 {
			t.Fatalf("%q: %v, %v", value, d, ok)
		}
		checkSeconds(t, trimSpace(value), d, ok)
	})
}

// checkSeconds compares a value of digits with unbounded arithmetic.
func checkSeconds(t *testing.T, value []byte, got time.Duration, ok bool) {
	t.Helper()
	if len(value) == 0 || len(value) > 1000 {
		return
	}
	for _, c := range value {
		if !isDigit(c) {
			return
		}
	}
	want, _ := new(big.Int).SetString(string(value), 10)
	want.Mul(want, big.NewInt(int64(time.Second)))
	if !want.IsInt64() {
		want.SetInt64(int64(backoff.Forever))
	}
	if !ok || int64(got) != want.Int64() {
		t.Fatalf("%q: %d, %v; want %v", value, got, ok, want)
	}
}

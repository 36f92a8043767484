package clock

import (
	"sync/atomic"
	"time"
)

// dateFormat is IMF-fixdate of RFC 9110 section 5.6.7, for times in UTC.
const dateFormat = "Mon, 02 Jan 2006 15:04:05 GMT"

// lastDate is the date that was formatted last. The process has one wall clock.
var lastDate atomic.Pointer[date]

type date struct {
	second int64
	text   []byte
}

// Date returns t as an HTTP date. Many calls in one second format it once. The bytes are shared and must not
// be changed. Date is safe for concurrent use.
func Date(t time.Time) []byte {
	second := t.Unix()
	d := lastDate.Load()
	if d == nil || d.second != second {
		d = &date{second, t.UTC().AppendFormat(nil, dateFormat)}
		lastDate.Store(d)
	}
	return d.text
}

// Date returns what the wall clock showed at t, as an HTTP date. See the function Date.
func (k *Clock) Date(t Instant) []byte {
	now := time.Now()
	return Date(now.Add(k.Since(t) - now.Sub(k.started)))
}

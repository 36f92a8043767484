//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// askedFor is the Retry-After of a response that has one.
	askedFor = time.Second
	// longestWait is the longest that a retry may be away: far more than
	// askedFor and a backoff, on a machine that has other things to do.
	longestWait = 15 * time.Second
)

// waits are those that the upstream asked for.
type waits struct {
	mu    sync.Mutex // guards all below
	asked map[string]wait
	wrong int64 // waits that were too short or too long
	right int64 // others
}

type wait struct {
	since time.Time
	least time.Duration
}

func (w *waits) begin(id string, least time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = map[string]wait{}
	}
	w.asked[id] = wait{time.Now(), least}
}

// end: a request is here again.
func (w *waits) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked, ok := w.asked[id]
	if !ok {
		return
	}
	delete(w.asked, id)
	if took := time.Since(asked.since); took < asked.least || took > longestWait {
		w.wrong++
	} else if asked.least > 0 {
		w.right++
	}
}

// judged gives the number of waits that were wrong; that there were none is an error.
func (w *waits) judged() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong+w.right == 0 {
		return 0, errors.New("nobody waited as asked")
	}
	return w.wrong, nil
}

// nowAndThen asks every third first attempt that may be retried to come again:
// in a second, at a date a second later, or it does not say when.
func (x *exchange) nowAndThen() error {
	if err := x.read(); err != nil {
		return err
	}
	x.s.waits.end(x.id)
	mayRepeat := manner{method: x.q.Method, key: x.q.Header.Get("Idempotency-Key") != ""}.mayRepeat()
	n := int64(1)
	if x.first && mayRepeat {
		n = x.s.nth.Add(1)
	}
	if n%3 != 0 {
		return x.write(byLength.render(x.id))
	}
	x.s.met.Add(1)
	now, least, after := time.Now().UTC(), askedFor, ""
	switch n / 3 % 3 {
	case 0:
		after = fmt.Sprintf("Retry-After: %d\r\n", askedFor/time.Second)
	case 1:
		after = fmt.Sprintf("Retry-After: %s\r\n", now.Add(askedFor).Format(http.TimeFormat))
	default:
		least = 0
	}
	x.s.waits.begin(x.id, least)
	return x.write(fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nDate: %s\r\n%sContent-Length: 0\r\n\r\n", now.Format(http.TimeFormat), after))
}

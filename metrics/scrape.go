package metrics

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// mostInHand is how many answers to scrapes are kept at once. One of a hundred
// routes takes some 1.2 MB (measured).
const mostInHand = 8

// Handler answers scrapes in the Prometheus text format. What can be shown is
// shown, even when a part of it is in error. Scrapes are gathered one at a time, the
// others wait their turn, so that a flood of them takes no more than a core; and each is sent
// only when it is whole, so that whoever does not read its own holds up nobody else's. Where
// mostInHand are being sent, the oldest is cut off for the next.
func (m *Metrics) Handler() http.Handler {
	gather := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	turn := make(chan struct{}, 1)
	var hand inHand
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		whole := answer{header: w.Header(), code: http.StatusOK}
		func() {
			defer func() { <-turn }()
			gather.ServeHTTP(&whole, r)
		}()
		defer hand.take(w)()
		w.WriteHeader(whole.code)
		_, _ = w.Write(whole.Bytes()) // a scraper that left needs no answer
	})
}

// inHand are the answers being sent, the oldest first.
type inHand struct {
	mu  sync.Mutex
	all []*http.ResponseController
}

// take makes room for one more, by cutting the oldest off where it must be, and gives what
// is to be called when it is sent.
func (h *inHand) take(w http.ResponseWriter) (done func()) {
	c := http.NewResponseController(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) == mostInHand {
		_ = h.all[0].SetWriteDeadline(time.Now()) // its write ends, and its connection
		h.all = h.all[1:]
	}
	h.all = append(h.all, c)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = slices.DeleteFunc(h.all, func(o *http.ResponseController) bool { return o == c })
	}
}

// answer keeps the body of one.
type answer struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (a *answer) Header() http.Header  { return a.header }
func (a *answer) WriteHeader(code int) { a.code = code }

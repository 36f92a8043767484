package metrics

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapesInFlight is how many answers to scrapes are kept at once. One of a hundred
// routes takes some 1.2 MB (measured).
const maxScrapesInFlight = 8

// Handler answers scrapes in the Prometheus text format. What can be shown is
// shown, even when a part of it is in error. Scrapes are gathered one at a time, the
// others wait their turn, so that a flood of them takes no more than a core; and each is sent
// only when it is whole, so that whoever does not read its own holds up nobody else's. Where
// maxScrapesInFlight are being sent, the oldest is cut off for the next.
func (m *Metrics) Handler() http.Handler {
	gather := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	turn := make(chan struct{}, 1)
	var inFlight scrapesInFlight
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		whole := bufferedResponse{header: w.Header(), code: http.StatusOK}
		func() {
			defer func() { <-turn }()
			gather.ServeHTTP(&whole, r)
		}()
		defer inFlight.begin(w)()
		w.WriteHeader(whole.code)
		_, _ = w.Write(whole.Bytes()) // a scraper that left needs no response
	})
}

// scrapesInFlight are the responses being sent, the oldest first.
type scrapesInFlight struct {
	mu  sync.Mutex
	all []*http.ResponseController
}

// begin makes room for one more, by cutting the oldest off where it must be, and gives what
// is to be called when it is sent.
func (h *scrapesInFlight) begin(w http.ResponseWriter) (done func()) {
	c := http.NewResponseController(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) == maxScrapesInFlight {
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

// bufferedResponse keeps the body of one.
type bufferedResponse struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (a *bufferedResponse) Header() http.Header  { return a.header }
func (a *bufferedResponse) WriteHeader(code int) { a.code = code }

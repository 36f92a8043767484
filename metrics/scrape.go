package metrics

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapesInFlight is how many responses to scrapes are kept at the same time. One with a
// hundred routes takes some 1.2 MB (measured).
const maxScrapesInFlight = 8

// Handler serves scrapes in the Prometheus text format, or as OpenMetrics with exemplars if the
// client asks for it. If part of the metrics fails, it still exports the rest. It gathers one
// scrape at a time, so that a flood of them uses no more than a core. It sends a response only when
// it is complete, so that a slow reader does not delay others. If maxScrapesInFlight are being
// sent, it cuts off the oldest for the next.
func (m *Metrics) Handler() http.Handler {
	gather := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true})
	gathering := make(chan struct{}, 1)
	var inFlight scrapesInFlight
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case gathering <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		whole := bufferedResponse{header: w.Header(), code: http.StatusOK}
		func() {
			defer func() { <-gathering }()
			gather.ServeHTTP(&whole, r)
		}()
		defer inFlight.begin(w)()
		w.WriteHeader(whole.code)
		_, _ = w.Write(whole.Bytes()) // a scraper that left needs no response
	})
}

// scrapesInFlight holds the responses being sent, the oldest first.
type scrapesInFlight struct {
	mu  sync.Mutex
	all []*http.ResponseController
}

// begin adds a response, cutting off the oldest if necessary. It returns a function to call
// when the response has been sent.
func (s *scrapesInFlight) begin(w http.ResponseWriter) (done func()) {
	c := http.NewResponseController(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == maxScrapesInFlight {
		_ = s.all[0].SetWriteDeadline(time.Now()) // ends its write and its connection
		s.all = s.all[1:]
	}
	s.all = append(s.all, c)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = slices.DeleteFunc(s.all, func(o *http.ResponseController) bool { return o == c })
	}
}

// bufferedResponse buffers the response to a scrape.
type bufferedResponse struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (a *bufferedResponse) Header() http.Header  { return a.header }
func (a *bufferedResponse) WriteHeader(code int) { a.code = code }

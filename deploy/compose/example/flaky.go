package main

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// addFlaky is a service on a bad day: every FAIL_EVERY-th request (0: none)
// that is no retry gets, in turn, a 503, a 429 with Retry-After: 1, or a reset
// after it was read. All others take DELAY_MS and go well; the query's
// delay=6s makes one take so long. For the first COLD_SECONDS after its start
// they take COLD_MS instead, as with empty caches.
func addFlaky(mux *http.ServeMux) error {
	every, err := number("FAIL_EVERY", 17)
	if err != nil {
		return err
	}
	millis, err := number("DELAY_MS", 10)
	if err != nil {
		return err
	}
	cold, err := number("COLD_SECONDS", 0)
	if err != nil {
		return err
	}
	coldMillis, err := number("COLD_MS", 500)
	if err != nil {
		return err
	}
	warm := time.Now().Add(time.Duration(cold) * time.Second)
	codes, firsts := &tally{}, &atomic.Int64{}
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, map[string]any{"answered": codes.all()}) })
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a broken body is the sender's affair
		delay, err := time.ParseDuration(r.URL.Query().Get("delay"))
		if err != nil {
			delay = time.Duration(millis) * time.Millisecond
			if time.Now().Before(warm) {
				delay = time.Duration(coldMillis) * time.Millisecond
			}
		}
		time.Sleep(delay)
		code := http.StatusOK
		if isFirst(r) && every > 0 {
			if n := firsts.Add(1); n%int64(every) == 0 {
				code = failureStatus(n / int64(every))
			}
		}
		codes.add(r.Method, code)
		switch code {
		case 0:
			panic(http.ErrAbortHandler)
		case http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, "order %s: %d\n", r.PathValue("id"), code)
	})
	return nil
}

func isFirst(r *http.Request) bool {
	attempt := r.Header.Get("X-Retryproxy-Attempt")
	return attempt == "" || attempt == "1"
}

// failureStatus is the status of the n-th failure; 0 is a reset.
func failureStatus(n int64) int {
	return []int{http.StatusServiceUnavailable, 0, http.StatusServiceUnavailable, http.StatusTooManyRequests}[n%4]
}

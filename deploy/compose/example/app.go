package main

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// addApp is an application that needs its upstream for every response. It knows
// nothing of retries: it passes on what it got, and answers 502 when that was
// nothing at all.
func addApp(mux *http.ServeMux) error {
	base := env("UPSTREAM", "")
	if base == "" {
		return errors.New("UPSTREAM is not set: expected a URL such as http://outbound:8080")
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second}}
	codes, unanswered := &tally{}, &atomic.Int64{}
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, map[string]any{"asked": codes.all(), "unanswered": unanswered.Load()})
	})
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		request, err := http.NewRequestWithContext(r.Context(), r.Method, base+r.URL.Path, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		request.ContentLength = r.ContentLength
		for _, name := range passedOn {
			if v := r.Header.Get(name); v != "" {
				request.Header.Set(name, v)
			}
		}
		response, err := client.Do(request)
		if err != nil {
			unanswered.Add(1)
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close() //nolint:errcheck // it was only read
		codes.add(r.Method, response.StatusCode)
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body) // a client cut off sees it
	})
	return nil
}

// passedOn are the fields that a good application hands down: with the key its
// POSTs can be retried too, and with the attempt's number the outbound side
// knows of the inbound one's retries.
var passedOn = []string{"Idempotency-Key", "X-Retryproxy-Attempt", "Content-Type"}

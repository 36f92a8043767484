package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// started is when the process began, for the order in which a Pod's containers start.
var started = time.Now()

// failNext is how many requests /work still fails with 503.
var failNext atomic.Int64

// answers is the application. / answers after the query's delay. /work does too, but fails as
// often as /fail said before. /kill ends the process at once, /grow uses memory until it is killed.
func answers() http.Handler {
	beforeServing()
	mux := http.NewServeMux()
	mux.HandleFunc("/", answer)
	mux.HandleFunc("/work", func(w http.ResponseWriter, r *http.Request) {
		if failNext.Add(-1) >= 0 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		answer(w, r)
	})
	mux.HandleFunc("POST /fail", func(_ http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Query().Get("times"), 10, 64)
		failNext.Store(n)
	})
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) { os.Exit(137) })
	mux.HandleFunc("POST /grow", func(http.ResponseWriter, *http.Request) { grow() })
	mux.HandleFunc("/started", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, started.UnixMilli()) })
	return mux
}

func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if delay, err := time.ParseDuration(r.URL.Query().Get("delay")); err == nil {
		time.Sleep(delay)
	}
	fmt.Fprintln(w, "ok")
}

// beforeServing calls the URL in CALL_FIRST, as an application does that cannot start without a
// remote service, and ends the process if that fails.
func beforeServing() {
	url := os.Getenv("CALL_FIRST")
	if url == "" {
		return
	}
	if problem := ask(&http.Client{Timeout: 10 * time.Second}, url); problem != "" {
		fmt.Fprintf(os.Stderr, "application: %s: %s\n", url, problem)
		os.Exit(1)
	}
	fmt.Println("the remote service answered before the application started")
}

// callLast calls the URL in CALL_LAST some time after SIGTERM, as an application does that reports
// or stores something at its end.
func callLast() {
	url := os.Getenv("CALL_LAST")
	if url == "" {
		return
	}
	time.Sleep(3 * time.Second)
	fmt.Printf("the last call: %q\n", ask(&http.Client{Timeout: 10 * time.Second}, url))
}

// grow never returns: the kernel kills the process at the container's limit.
func grow() {
	for kept := [][]byte(nil); ; {
		block := make([]byte, 4<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		kept = append(kept, block)
		_ = kept
	}
}

// job is a Job's work.
func job() error {
	calls, _ := strconv.Atoi(os.Getenv("CALLS"))
	client := &http.Client{Timeout: time.Minute}
	for i := range max(calls, 1) {
		if problem := ask(client, os.Getenv("API_URL")); problem != "" {
			return fmt.Errorf("call %d: %s", i+1, problem)
		}
	}
	fmt.Println("all calls answered")
	return nil
}

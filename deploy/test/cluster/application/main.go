// Command application is what the tests in a cluster stand retryproxy before. It
// answers every request after the query's delay (0 by default). At SIGTERM it
// ends in order, or, with ABRUPT=true, at once.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	server := &http.Server{Addr: ":3000", Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second}
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		fmt.Fprintln(os.Stderr, "application:", err)
		os.Exit(1)
	case <-told.Done():
	}
	if os.Getenv("ABRUPT") == "true" {
		return
	}
	patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = server.Shutdown(patience) // what is not done by then is cut off
}

func answer(w http.ResponseWriter, r *http.Request) {
	if delay, err := time.ParseDuration(r.URL.Query().Get("delay")); err == nil {
		time.Sleep(delay)
	}
	fmt.Fprintln(w, "ok")
}

// Command application plays the parts around retryproxy in the tests in a cluster:
//
//	application serve  an application on :3000
//	application load   a client on :3001 that sends requests when it is asked to
//	application job    calls API_URL CALLS times, and fails if one of them does
//
// Without an argument it serves.
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
	part := "serve"
	if len(os.Args) > 1 {
		part = os.Args[1]
	}
	parts := map[string]func() error{
		"serve": func() error { return listen(":3000", answers()) },
		"load":  func() error { return listen(":3001", orders()) },
		"job":   job,
	}
	run := parts[part]
	if run == nil {
		fmt.Fprintln(os.Stderr, "usage: application serve|load|job")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "application:", err)
		os.Exit(1)
	}
}

// listen serves until SIGTERM. Then it ends in order or, with ABRUPT=true, at once.
func listen(address string, handler http.Handler) error {
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if os.Getenv("ABRUPT") == "true" {
		return nil
	}
	callLast()
	patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = server.Shutdown(patience) // what has not ended by then is cut off
	return nil
}

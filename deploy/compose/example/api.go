package main

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// serveAPI is an https API for docs/tutorials/api.md, on LISTEN (127.0.0.1:8443). Every other
// attempt fails: GET /v1/search with 503, POST /v1/orders with 429 and Retry-After: 1. It writes
// the certificate to trust to api-ca.pem.
func serveAPI() error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/search", everyOther(http.StatusServiceUnavailable, `{"found":["shoes"]}`))
	mux.HandleFunc("POST /v1/orders", everyOther(http.StatusTooManyRequests, `{"order":1}`))
	listener, err := net.Listen("tcp", env("LISTEN", "127.0.0.1:8443"))
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(mux)
	_ = server.Listener.Close() // the one of httptest has a random port
	server.Listener = listener
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile("api-ca.pem", ca, 0o600); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	return nil
}

// everyOther fails the first attempt, the third and so on.
func everyOther(code int, good string) http.HandlerFunc {
	var attempts atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if attempts.Add(1)%2 == 0 {
			fmt.Fprintln(w, good)
			return
		}
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, "{\"error\":%d}\n", code)
	}
}

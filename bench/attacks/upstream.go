package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// good is what other callers ask for.
var good = strings.Repeat("good", 256)

// send answers with n bytes.
func send(w io.Writer, n int) {
	for ; n > 0; n -= len(good) {
		if _, err := io.WriteString(w, good); err != nil {
			return
		}
	}
}

// startUpstream serves what is behind the proxy.
func startUpstream() (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, good)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond):
			_, _ = io.WriteString(w, good)
		}
	})
	mux.HandleFunc("/medium", func(w http.ResponseWriter, _ *http.Request) { send(w, mib) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { send(w, 16*mib) }) // more than sockets take
	mux.HandleFunc("/deaf", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := &http.Server{Handler: mux}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	return l.Addr().String(), func() { _ = s.Close(); <-ended }, nil
}

package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// good is what other clients ask for.
var good = strings.Repeat("good", 256)

// send answers with n bytes.
func send(w io.Writer, n int) {
	for ; n > 0; n -= len(good) {
		if _, err := io.WriteString(w, good); err != nil {
			return
		}
	}
}

// askedField is the target that the upstream answers, in each of its responses.
const askedField = "X-Asked"

// saysWhat has a handler say which target it answers.
func saysWhat(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(askedField, r.RequestURI)
		h.ServeHTTP(w, r)
	})
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
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { // ?STATUS&LOCATION
		status, to, _ := strings.Cut(r.URL.RawQuery, "&")
		n, _ := strconv.Atoi(status)
		w.Header()["Location"] = []string{to}
		w.WriteHeader(max(n, 200))
	})
	return l.Addr().String(), serveOn(l, saysWhat(mux)), nil
}

// serveOn serves until stop.
func serveOn(l net.Listener, h http.Handler) (stop func()) {
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	return func() { _ = s.Close(); <-ended }
}

// serve has a handler of the attack's own on loopback, until all is over.
func (st *stage) serve(h http.Handler) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	st.later(serveOn(l, saysWhat(h)))
	return l.Addr().String(), nil
}

// raw answers with bytes of any kind and ends the connection.
func raw(w http.ResponseWriter, answer string) {
	nc, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, answer)
}

package demo

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// requestField is the header with the number of a request of the demo's own traffic, the same on
// both sides. A user's curl does not send it.
const requestField = "X-Demo-Request"

// maxBody limits what the upstream reads of a request.
const maxBody = 1 << 20

// answer is the body of a successful response.
type answer struct {
	Path    string `json:"path"`
	Attempt uint64 `json:"attempt"` // 1 if sent without retryproxy
	Bytes   int    `json:"bytes"`   // of the request's body
}

// flaky is the upstream: an HTTP server on loopback that fails as weather decides.
type flaky struct {
	weather weather
	clock   func() time.Duration // time since the start
	http    *http.Server
	listen  net.Listener

	curls atomic.Uint64           // requests without requestField
	sends [numSides]atomic.Uint64 // requests of the demo's traffic received
}

func newFlaky(seed uint64) (*flaky, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	started := time.Now()
	f := &flaky{weather: weather{seed}, clock: func() time.Duration { return time.Since(started) }, listen: l}
	f.http = &http.Server{
		Handler:           f,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	return f, nil
}

func (f *flaky) url() string { return "http://" + f.listen.Addr().String() }

// serve serves until close.
func (f *flaky) serve() { _ = f.http.Serve(f.listen) }

// close stops the server. Running requests have two seconds to end.
func (f *flaky) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if f.http.Shutdown(ctx) != nil {
		_ = f.http.Close()
	}
}

// ServeHTTP reads the whole request before it fails in any way. So, as in practice, the proxy does
// not know whether the work was done.
func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the request's body is broken or too large", http.StatusBadRequest)
		return
	}
	request, attempt := f.number(r)
	switch f.weather.fate(f.clock(), request, attempt) {
	case unavailable:
		http.Error(w, "no server is free", http.StatusServiceUnavailable)
	case throttled:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	case cut:
		resetConnection(w)
	case slow:
		reply(w, r, slowAnswer, answer{r.URL.Path, attempt, len(body)})
	default:
		reply(w, r, fineAnswer, answer{r.URL.Path, attempt, len(body)})
	}
}

// number returns the request number and the attempt number, and counts the attempt.
func (f *flaky) number(r *http.Request) (request, attempt uint64) {
	attempt, err := strconv.ParseUint(r.Header.Get("X-Retryproxy-Attempt"), 10, 8)
	side := proxied
	if err != nil {
		side, attempt = direct, 1
	}
	request, err = strconv.ParseUint(r.Header.Get(requestField), 10, 32)
	if err != nil {
		return 1<<32 + f.curls.Add(1), attempt
	}
	f.sends[side].Add(1)
	return request, attempt
}

func reply(w http.ResponseWriter, r *http.Request, after time.Duration, a answer) {
	select {
	case <-time.After(after):
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // a client that left needs no response
}

// resetConnection makes the kernel send RST instead of FIN.
func resetConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

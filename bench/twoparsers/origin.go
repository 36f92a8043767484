package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/retryproxy/retryproxy/bench/internal/streams"
)

// streamField names, to an origin behind another server, the port from which
// that one was asked.
const streamField = "X-Two-Parsers"

// origin is net/http's server. It keeps what it reads, by the stream that it came from.
type origin struct {
	server http.Server
	addr   string

	mu   sync.Mutex // guards what follows
	read map[string][]streams.Reading
}

// newOrigin starts one. behind: others pass requests on to it, and say of which stream.
func newOrigin(behind bool) (*origin, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{addr: l.Addr().String(), read: map[string][]streams.Reading{}}
	o.server = http.Server{DisableGeneralOptionsHandler: true, MaxHeaderBytes: 1 << 20, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { o.keep(req, behind) })}
	go func() { _ = o.server.Serve(l) }()
	return o, nil
}

func (o *origin) keep(req *http.Request, behind bool) {
	r, err := streams.ReadingOf(req)
	if err != nil {
		return // it was cut off, and nobody takes it for whole
	}
	_, stream, _ := net.SplitHostPort(req.RemoteAddr)
	if behind {
		stream = req.Header.Get(streamField)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read[stream] = append(o.read[stream], r)
}

// take gives what was read of a stream, and forgets it.
func (o *origin) take(stream string) []streams.Reading {
	o.mu.Lock()
	defer o.mu.Unlock()
	got := o.read[stream]
	delete(o.read, stream)
	return got
}

package rig

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// Patient is a connection with a time limit, Quiet, for each read.
type Patient struct {
	net.Conn
	Quiet time.Duration
}

func (p *Patient) Read(b []byte) (int, error) {
	_ = p.SetReadDeadline(time.Now().Add(p.Quiet))
	return p.Conn.Read(b)
}

// mostQuiet is how long Exchange waits after it has ended its own side.
const mostQuiet = 20 * time.Second

// Exchange sends raw over a new connection and returns all that comes back, and its own port. If nothing
// comes for the time quiet, it ends its own side, so that a proxy does not wait for the rest of a body.
func Exchange(addr string, raw []byte, quiet time.Duration) (all []byte, port string, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, "", err
	}
	_, port, _ = net.SplitHostPort(c.LocalAddr().String())
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = c.Write(raw) }()
	defer func() { _ = c.Close(); <-sent }()
	in := &Patient{c, quiet}
	for {
		more, err := io.ReadAll(in)
		all = append(all, more...)
		if errors.Is(err, os.ErrDeadlineExceeded) && in.Quiet != mostQuiet {
			_ = c.(*net.TCPConn).CloseWrite()
			in.Quiet = mostQuiet
			continue
		}
		if op := (*net.OpError)(nil); errors.As(err, &op) && !op.Timeout() {
			err = nil // a server that refuses a request may close with bytes unread
		}
		return all, port, err
	}
}

// Statuses returns the final statuses of responses to requests with these methods, and to GETs after them.
func Statuses(responses []byte, methods ...string) (all []int) {
	r := bufio.NewReader(bytes.NewReader(responses))
	for {
		method := http.MethodGet
		if len(all) < len(methods) {
			method = methods[len(all)]
		}
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return all
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode >= 200 {
			all = append(all, res.StatusCode)
		}
	}
}

// KindOf returns a short name for an error.
func KindOf(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "other"
}

// Sleep waits for d. It reports whether d passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Await waits until so returns true, at most for limit.
func Await(ctx context.Context, what string, limit time.Duration, so func() bool) error {
	for end := time.Now().Add(limit); !so(); {
		if time.Now().After(end) {
			return fmt.Errorf("not %s within %v", what, limit)
		}
		if !Sleep(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// Parallel calls f with 0 to n-1, at most many at a time, and returns when all calls have returned.
func Parallel(many, n int, f func(i int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, many)
	for i := range n {
		room <- struct{}{}
		all.Go(func() { defer func() { <-room }(); f(i) })
	}
	all.Wait()
}

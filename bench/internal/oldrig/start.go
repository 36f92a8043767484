package oldrig

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// startLimit bounds the wait for the first response.
const startLimit = 15 * time.Second

// StartToAnswer starts a proxy, asks it for path until it answers, and ends it.
// It gives the time from before the start to the first byte of the response.
func StartToAnswer(ctx context.Context, name string, s *Spec, path string) (time.Duration, error) {
	free, err := process.FreeAddresses(1)
	if err != nil {
		return 0, err
	}
	c, err := s.command(name, free[0])
	if err != nil {
		return 0, err
	}
	began := time.Now()
	p, err := c.start()
	if err != nil {
		return 0, err
	}
	defer p.End()
	for ctx.Err() == nil && time.Since(began) < startLimit {
		if err := p.Alive(); err != nil {
			return 0, err
		}
		if answers(free[0], path) {
			return time.Since(began), nil
		}
		time.Sleep(200 * time.Microsecond)
	}
	return 0, fmt.Errorf("no response within %v: %w", startLimit, ctx.Err())
}

// answers asks once.
func answers(addr, path string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(startLimit))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: bench.test\r\n\r\n", path); err != nil {
		return false
	}
	var b [16]byte
	n, _ := c.Read(b[:])
	return n > 12 && string(b[9:12]) == "200"
}

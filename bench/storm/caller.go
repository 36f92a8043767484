package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// caller is a program that wants an answer now and then, and tries until it
// has it. It has one connection at a time, kept while it works.
type caller struct {
	o       *callerOptions
	addr    string
	dialer  net.Dialer
	rand    *rand.Rand
	record  *record
	request []byte

	conn   net.Conn // nil: none
	in     *bufio.Reader
	reused bool // conn has brought an answer already
}

// runCallers runs all callers until ctx ends; addrs are shared out among them
// evenly.
func runCallers(ctx context.Context, o *callerOptions, addrs []string, seed uint64, r *record) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range o.n {
		c := &caller{
			o: o, addr: addrs[i*len(addrs)/o.n], record: r,
			dialer:  net.Dialer{LocalAddr: &net.TCPAddr{IP: sourceOf(i)}},
			rand:    rand.New(rand.NewPCG(seed, uint64(i))),
			request: fmt.Appendf(nil, "GET /work/%d HTTP/1.1\r\nHost: storm.example\r\nUser-Agent: storm\r\nAccept: */*\r\n\r\n", i%o.paths),
			in:      newReader(),
		}
		all.Go(func() { c.run(ctx) })
	}
	return &all
}

func newReader() *bufio.Reader { return bufio.NewReaderSize(nil, 1024) }

// sourceOf spreads the callers over addresses of the loopback network, so that
// no single one runs out of ports.
func sourceOf(i int) net.IP {
	const perAddress = 20
	i /= perAddress
	return net.IPv4(127, 0, byte(1+i/200), byte(1+i%200))
}

// run sends, waits and tries again, until ctx ends.
func (c *caller) run(ctx context.Context) {
	defer c.hangUp()
	for c.sleep(ctx, time.Duration(c.rand.ExpFloat64()*float64(c.o.every))) {
		for failed := 0; !c.try(ctx); failed++ {
			if !c.sleep(ctx, c.pause(failed)) {
				return
			}
		}
	}
}

// pause is the time before the next try, after failed+1 in a row went wrong:
// constant, or uniform in [0, min(again*2^failed, most)].
func (c *caller) pause(failed int) time.Duration {
	if !c.o.backoff {
		return c.o.again
	}
	d := c.o.again
	for ; failed > 0 && d < c.o.most; failed-- {
		d *= 2
	}
	return time.Duration(c.rand.Int64N(int64(min(d, c.o.most)) + 1))
}

func (c *caller) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// try asks once and notes what came of it; true when it was a 200.
func (c *caller) try(ctx context.Context) bool {
	deadline := time.Now().Add(c.o.patience)
	status, err := c.exchange(ctx, deadline)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && !time.Now().Before(deadline):
		c.record.late()
	case err != nil:
		c.record.bad(kindOf(err))
	case status != http.StatusOK:
		c.record.bad(strconv.Itoa(status))
	default:
		c.record.good()
		return true
	}
	return false
}

// exchange sends the request and reads the answer. A kept connection that
// turns out to be closed is no answer: then a new one is made, as every
// client library does.
func (c *caller) exchange(ctx context.Context, deadline time.Time) (status int, err error) {
	reused := c.reused
	if status, err = c.once(ctx, deadline); err != nil {
		c.hangUp()
		if reused && time.Now().Before(deadline) {
			if status, err = c.once(ctx, deadline); err != nil {
				c.hangUp()
			}
		}
	}
	return status, err
}

func (c *caller) once(ctx context.Context, deadline time.Time) (int, error) {
	if c.conn == nil {
		c.dialer.Deadline = deadline
		conn, err := c.dialer.DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return 0, err
		}
		c.conn, c.reused = conn, false
		c.in.Reset(conn)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	c.reused = true
	if resp.Close {
		c.hangUp()
	}
	return resp.StatusCode, nil
}

// hangUp closes the connection, as callers do that have had enough.
func (c *caller) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn, c.reused = nil, false
	}
}

// kindOf is a short name of what went wrong.
func kindOf(err error) string {
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

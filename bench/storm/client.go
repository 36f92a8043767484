package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
)

// client is a program that wants a response now and then, and tries until it
// has it. It has one connection at a time, kept while it works.
type client struct {
	o      *clientOptions
	client httpclient.Client
	rand   *rand.Rand
	record *record
}

// runClients runs all clients until ctx ends; addrs are shared out among them
// evenly.
func runClients(ctx context.Context, o *clientOptions, addrs []string, seed uint64, r *record) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range o.n {
		c := &client{
			o: o, record: r,
			rand: rand.New(rand.NewPCG(seed, uint64(i))),
			client: httpclient.Client{
				Addr:    addrs[i*len(addrs)/o.n],
				Dialer:  net.Dialer{LocalAddr: &net.TCPAddr{IP: sourceOf(i)}},
				Request: fmt.Appendf(nil, "GET /work/%d HTTP/1.1\r\nHost: storm.example\r\nUser-Agent: storm\r\nAccept: */*\r\n\r\n", i%o.paths),
			},
		}
		all.Go(func() { c.run(ctx) })
	}
	return &all
}

// sourceOf spreads the clients over addresses of the loopback network, so that
// no single one runs out of ports.
func sourceOf(i int) net.IP {
	const perAddress = 20
	i /= perAddress
	return net.IPv4(127, 0, byte(1+i/200), byte(1+i%200))
}

// run sends, waits and tries again, until ctx ends.
func (c *client) run(ctx context.Context) {
	defer c.client.HangUp()
	for httpclient.Sleep(ctx, time.Duration(c.rand.ExpFloat64()*float64(c.o.every))) {
		for failed := 0; !c.try(ctx); failed++ {
			if !httpclient.Sleep(ctx, c.pause(failed)) {
				return
			}
		}
	}
}

// pause is the time before the next try, after failed+1 in a row went wrong:
// constant, or uniform in [0, min(again*2^failed, most)].
func (c *client) pause(failed int) time.Duration {
	if !c.o.backoff {
		return c.o.again
	}
	d := c.o.again
	for ; failed > 0 && d < c.o.most; failed-- {
		d *= 2
	}
	return time.Duration(c.rand.Int64N(int64(min(d, c.o.most)) + 1))
}

// try asks once and notes what came of it; true when it was a 200.
func (c *client) try(ctx context.Context) bool {
	deadline := time.Now().Add(c.o.patience)
	status, err := c.client.Exchange(ctx, deadline)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && !time.Now().Before(deadline):
		c.record.late()
	case err != nil:
		c.record.bad(httpclient.KindOf(err))
	case status != http.StatusOK:
		c.record.bad(strconv.Itoa(status))
	default:
		c.record.good()
		return true
	}
	return false
}

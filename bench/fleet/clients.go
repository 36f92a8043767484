package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
)

// request is what all clients send.
var request = []byte("GET /limited HTTP/1.1\r\nHost: fleet.example\r\n\r\n")

// crowd are clients that are shared out evenly among proxies. Each has one
// request at a time, and a pause of exponential length after each response,
// whatever it was.
type crowd struct {
	n        int
	every    time.Duration // mean of the pause; 0: none
	patience time.Duration // a response that takes longer is a failure
	seed     uint64
}

// call runs them until ctx ends.
func (c *crowd) call(ctx context.Context, addrs []string, r *record) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range c.n {
		all.Go(func() {
			one := client{crowd: c, rand: rand.New(rand.NewPCG(c.seed, uint64(i))), record: r}
			one.client = httpclient.Client{Addr: addrs[i%len(addrs)], Request: request}
			one.run(ctx)
		})
	}
	return &all
}

// client is one of a crowd.
type client struct {
	*crowd
	client httpclient.Client
	rand   *rand.Rand
	record *record
}

func (c *client) run(ctx context.Context) {
	defer c.client.HangUp()
	for c.pause(ctx) {
		c.ask(ctx)
	}
}

// pause reports whether the client goes on after it.
func (c *client) pause(ctx context.Context) bool {
	return httpclient.Sleep(ctx, time.Duration(c.rand.ExpFloat64()*float64(c.every)))
}

// ask sends a request and notes what came of it.
func (c *client) ask(ctx context.Context) {
	began := time.Now()
	status, err := c.client.Exchange(ctx, began.Add(c.patience))
	switch {
	case ctx.Err() != nil && err != nil: // the end of the arm
	case err != nil && time.Since(began) >= c.patience:
		c.record.late()
	case err != nil:
		c.record.failed(httpclient.KindOf(err))
	case status == http.StatusOK, status == http.StatusTooManyRequests:
		c.record.got(status, time.Since(began))
	default:
		c.record.failed(strconv.Itoa(status))
	}
}

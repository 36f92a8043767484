package rig

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// What a Crowd counts of each request.
const (
	Good = "good"  // 200 in time
	Late = "late"  // nothing in time
	Bad  = "bad: " // and a status or a kind of error
)

// Crowd are clients that have one request at a time each. After a good response a client pauses for
// an exponential time.
type Crowd struct {
	N        int
	Every    time.Duration // mean of the pause; 0: none
	Patience time.Duration // for a response
	Seed     uint64
	Request  func(client int) []byte
	// Again is the pause before the request is sent again, after failed+1 failures in a row; nil: it is not.
	Again func(r *rand.Rand, failed int) time.Duration
}

// Run runs the clients, shared out evenly among addrs, until ctx ends.
func (c *Crowd) Run(ctx context.Context, addrs []string, t *Timeline) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range c.N {
		r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		client := &Client{Addr: addrs[i%len(addrs)], Request: c.Request(i), From: source(i)}
		all.Go(func() { c.run(ctx, client, r, t) })
	}
	return &all
}

// source spreads clients over the loopback network, so that no address runs out of ports.
func source(client int) net.IP {
	client /= 20
	return net.IPv4(127, 0, byte(1+client/200), byte(1+client%200))
}

func (c *Crowd) run(ctx context.Context, client *Client, r *rand.Rand, t *Timeline) {
	defer client.HangUp()
	for Sleep(ctx, time.Duration(r.ExpFloat64()*float64(c.Every))) {
		for failed := 0; !c.Try(ctx, client, t) && c.Again != nil; failed++ {
			if !Sleep(ctx, c.Again(r, failed)) {
				return
			}
		}
	}
}

// Try sends one request, counts what came of it, and reports whether that was a 200.
func (c *Crowd) Try(ctx context.Context, client *Client, t *Timeline) bool {
	began := time.Now()
	status, err := client.Exchange(ctx, began.Add(c.Patience))
	switch {
	case ctx.Err() != nil && err != nil: // the end of the run
		return false
	case err != nil && time.Since(began) >= c.Patience:
		t.Count(Late, 1)
	case err != nil:
		t.Count(Bad+KindOf(err), 1)
	default:
		t.Took(time.Since(began))
		if status == http.StatusOK {
			t.Count(Good, 1)
			return true
		}
		t.Count(Bad+strconv.Itoa(status), 1)
	}
	return false
}

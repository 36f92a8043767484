package rig

import (
	"context"
	"io"
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
	Path     func(client int) string // of what a client asks for
	// Again is the pause before the request is sent again, after failed+1 failures in a row; nil: it is not.
	Again func(r *rand.Rand, failed int) time.Duration
}

// Run runs the clients, shared out evenly among addrs, until ctx ends.
func (c *Crowd) Run(ctx context.Context, addrs []string, t *Timeline) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range c.N {
		r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: source(i)}}
		kept := &http.Transport{DialContext: d.DialContext, DisableCompression: true}
		all.Go(func() {
			defer kept.CloseIdleConnections()
			c.run(ctx, &http.Client{Transport: kept}, "http://"+addrs[i%len(addrs)]+c.Path(i), r, t)
		})
	}
	return &all
}

// source spreads clients over the loopback network, so that no address runs out of ports.
func source(client int) net.IP {
	client /= 20
	return net.IPv4(127, 0, byte(1+client/200), byte(1+client%200))
}

func (c *Crowd) run(ctx context.Context, client *http.Client, url string, r *rand.Rand, t *Timeline) {
	for Sleep(ctx, time.Duration(r.ExpFloat64()*float64(c.Every))) {
		for failed := 0; !c.Try(ctx, client, url, t) && c.Again != nil; failed++ {
			if !Sleep(ctx, c.Again(r, failed)) {
				return
			}
		}
	}
}

// Try sends one request, counts what came of it, and reports whether that was a 200. A kept
// connection that was closed meanwhile is replaced, as by every client library.
func (c *Crowd) Try(ctx context.Context, client *http.Client, url string, t *Timeline) bool {
	began := time.Now()
	status, err := c.get(ctx, client, url)
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

func (c *Crowd) get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// clientsHost is the Host of every request. It is not the proxy's own name, so
// the proxy has to keep it.
const clientsHost = "soak.test"

// mostPatience is how long a client waits for the head of its response, and again
// for each piece of the body. Longer than all timeouts of the proxy together.
const mostPatience = 15 * time.Second

// team is what all clients share.
type team struct {
	ledger *ledger
	seed   uint64
	proxy  string // address
	judge  *judge

	patience time.Duration // of each client, for a head or a piece of a body

	nextID atomic.Uint64
	sent   atomic.Uint64 // requests that the proxy has taken for sure
	up     atomic.Int64  // body bytes sent
	down   atomic.Int64  // body bytes received

	breakers atomic.Uint64 // of the requests sent, those that broke a rule
}

// client sends one request after the other, over a connection that it keeps
// as long as the proxy lets it.
type client struct {
	t    *team
	from net.IP // source address, so that ports do not run out
	conn net.Conn
	br   *bufio.Reader
}

// run sends requests until the context ends; the one in flight is ended.
func (c *client) run(ctx context.Context) {
	defer c.hangUp(false)
	for ctx.Err() == nil {
		p := c.t.plan()
		pause(ctx, p.think)
		if p.pipelines() && p.id%11 == 0 {
			c.pipeline(p)
			continue
		}
		c.exchange(p)
	}
}

func (t *team) plan() *plan { return newPlan(t.seed, t.nextID.Add(1)) }

// dial makes the connection when there is none.
func (c *client) dial() bool {
	if c.conn != nil {
		return true
	}
	d := net.Dialer{Timeout: c.t.patience, LocalAddr: &net.TCPAddr{IP: c.from}}
	conn, err := d.Dial("tcp", c.t.proxy)
	if err != nil {
		c.t.ledger.violation("no connection", "dial the proxy: %v", err)
		time.Sleep(100 * time.Millisecond)
		return false
	}
	c.conn = conn
	if c.br == nil {
		c.br = bufio.NewReaderSize(conn, 16<<10)
	} else {
		c.br.Reset(conn)
	}
	return true
}

// hangUp ends the connection, by a reset if asked for.
func (c *client) hangUp(reset bool) {
	if c.conn == nil {
		return
	}
	if tcp, ok := c.conn.(*net.TCPConn); ok && reset {
		tcp.SetLinger(0)
	}
	c.conn.Close()
	c.conn = nil
}

// exchange sends one request, reads its response and has it judged.
func (c *client) exchange(p *plan) {
	if !c.dial() {
		return
	}
	e := c.t.ledger.open(p)
	w := c.startWriting(p)
	left := p.conduct == leaves && waitSeen(e, p, c.t.patience/3)
	end := ending{}
	if !left {
		got := c.read(e, w)
		left = got.left
		c.t.judge.ruling(e, got)
		end = got.ending()
	}
	if left || !p.lasts() || !c.wrote(w) {
		c.hangUp(left && p.id%2 == 0)
	}
	w.wait(c)
	c.t.sent.Add(1)
	if p.conduct == breaksRules {
		c.t.breakers.Add(1)
	}
	end.left = left || p.conduct == cutsUpload
	c.t.ledger.close(e, end)
}

// lasts: the connection may serve another request after this one.
func (p *plan) lasts() bool {
	return p.conduct == behaves || p.conduct == readsSlowly || p.conduct == writesSlowly
}

// wrote says whether the request has been sent whole, as it must have been for
// another to follow. A response that came before that leaves it a moment.
func (c *client) wrote(w *writing) bool {
	if c.conn == nil {
		return true
	}
	select {
	case <-w.done:
		return w.whole
	case <-time.After(100 * time.Millisecond):
		return false
	}
}

// waitSeen waits until the request is at the upstream, and a little longer.
// False: it does not get there, so there will be a response.
func waitSeen(e *entry, p *plan, most time.Duration) bool {
	select {
	case <-e.seen:
		time.Sleep(time.Duration(p.when * 40 * float64(time.Millisecond)))
		return true
	case <-time.After(most):
		return false
	}
}

// mostPipelined bounds the requests sent in one go.
const mostPipelined = 4

// pipeline sends p and a few requests after it at once and reads the responses
// in order. A request behind a response that ends the connection was not taken.
func (c *client) pipeline(p *plan) {
	if !c.dial() {
		return
	}
	batch := []*plan{p}
	for len(batch) < mostPipelined {
		next := c.t.plan()
		if !next.pipelines() {
			break // its number is skipped
		}
		batch = append(batch, next)
	}
	entries := make([]*entry, len(batch))
	w := &writing{t: c.t}
	for i, p := range batch {
		entries[i] = c.t.ledger.open(p)
		w.render(p)
	}
	w.begin(c.conn)
	for _, e := range entries {
		end := ending{reply: "no response, as the connection ended before its turn"}
		if c.conn != nil {
			got := c.read(e, w)
			c.t.judge.ruling(e, got)
			c.t.sent.Add(1)
			end = got.ending()
		}
		c.t.ledger.close(e, end)
	}
	if !c.wrote(w) {
		c.hangUp(false)
	}
	w.wait(c)
}

// copyUpTo reads n bytes of r.
func copyUpTo(r io.Reader, n int64) { _, _ = io.CopyN(io.Discard, r, n) }

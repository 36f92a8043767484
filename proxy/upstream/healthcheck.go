package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/status"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// HealthCheck is how the endpoints of a Group are checked. The zero value checks nothing.
type HealthCheck struct {
	Path     string        // of the GET, with an optional query; "" for none
	Host     string        // the Host header; "" means the target's
	Interval time.Duration // between the checks of one endpoint, plus or minus a tenth; default DefaultHealthInterval
}

// DefaultHealthInterval is the interval of Kubernetes' probes.
const DefaultHealthInterval = 10 * time.Second

// The thresholds of HAProxy (fall 3, rise 2), which operators know.
const (
	unhealthyAfter = 3 // failed checks in a row
	healthyAfter   = 2 // passed checks in a row
)

const (
	// checkTimeout bounds one check, with its connection. A shorter Interval bounds it too, but it
	// always has leastCheckTimeout, for a machine under load.
	checkTimeout      = 5 * time.Second
	leastCheckTimeout = time.Second
	// checkedAtOnce bounds the checks in progress.
	checkedAtOnce = 16
	// checkRestBytes bounds what is read of a check's body, so that the endpoint is not reset while it
	// writes it.
	checkRestBytes = 64 << 10
	// checkHeaderBytes bounds the response headers of a check.
	checkHeaderBytes = 64 << 10
	checkAgent       = "retryproxy-health"
)

// StartHealthChecks checks the endpoints until Close, if Options.HealthCheck asks for it. A single
// endpoint is checked too, but used in any case. Only the first call has an effect, and none after
// Close.
func (g *Group) StartHealthChecks() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.options.HealthCheck.Path == "" || g.singlePool != nil || g.closed || g.checking {
		return
	}
	g.checking = true
	g.checks.Go(g.checkHealth)
}

func (g *Group) checkHealth() {
	interval := g.options.HealthCheck.Interval
	for g.background.Err() == nil {
		next := time.Now().Add(interval - interval/10 + rand.N(interval/5+1))
		g.checkAll()
		pause := time.NewTimer(time.Until(next))
		select {
		case <-pause.C:
		case <-g.background.Done():
			pause.Stop()
		}
	}
}

// checkAll checks all endpoints, after a lookup of the names if their last response has expired.
func (g *Group) checkAll() {
	ctx, cancel := context.WithTimeout(g.background, lookupTimeout)
	err := g.ensureResolved(ctx, &GetOptions{}, lookupTimeout)
	cancel()
	if err != nil {
		return // the next dial reports it
	}
	g.mu.Lock()
	endpoints := append([]*Endpoint(nil), g.endpoints...)
	g.mu.Unlock()
	var all sync.WaitGroup
	slots := make(chan struct{}, checkedAtOnce)
	for _, m := range endpoints {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			m.noteCheck(m.check(&g.options.HealthCheck))
		})
	}
	all.Wait()
}

// check sends one GET on its own connection. Statuses from 200 to 399 pass, as with the probes of
// Kubernetes.
func (e *Endpoint) check(h *HealthCheck) error {
	ctx, cancel := context.WithTimeout(e.group.background, min(checkTimeout, max(h.Interval, leastCheckTimeout)))
	defer cancel()
	c, err := e.dialCheck(ctx)
	if err != nil {
		return err
	}
	defer c.Abort()
	at, _ := ctx.Deadline()
	_ = c.SetDeadline(at)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	head := h.head(c.Form(), e.pool.target.Host)
	if _, err := c.Begin(&head, [][]byte{head.Fields}, true, nil); err != nil {
		return err
	}
	code, _, err := readStatus(c)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, c, checkRestBytes)
	if !status.Healthy(code) {
		return fmt.Errorf("status %d", code)
	}
	return nil
}

// head returns the request of a check.
func (h *HealthCheck) head(form wire.Form, host string) wire.Head {
	if h.Host != "" {
		host = h.Host
	}
	return wire.Get(form, h.Path, host, checkAgent)
}

// readStatus reads the headers of the final response, and returns its status and what came behind them.
func readStatus(c *Conn) (status int, rest []byte, err error) {
	buf, w := make([]byte, checkHeaderBytes), 0
	var r http1.Response
	for {
		n, err := c.ReadResponse(&r, buf[:w], http1.Limits{HeaderBytes: checkHeaderBytes}, []byte("GET"))
		switch {
		case err != nil:
			return 0, nil, err
		case n > 0 && r.Interim():
			w = copy(buf, buf[n:w])
			continue
		case n > 0:
			return r.Status, buf[n:w], nil
		}
		m, err := c.Read(buf[w:])
		if w += m; m == 0 {
			return 0, nil, cmp.Or(err, io.ErrNoProgress)
		}
	}
}

// dialCheck connects to the endpoint. It does not count as a dial of the pool. The pool does not
// keep the connection either, which HTTP/2 may share.
func (e *Endpoint) dialCheck(ctx context.Context) (*Conn, error) {
	own := newPool(e.pool.target, e.group.options, nil)
	own.Close()
	c, err := own.dialOne(ctx, &GetOptions{HTTP1: true})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// noteCheck records the result of a check.
func (e *Endpoint) noteCheck(err error) {
	g := e.group
	if errors.Is(err, context.Canceled) || noDescriptors(err) {
		return // no evidence about the endpoint
	}
	g.mu.Lock()
	changed := e.countCheck(err == nil)
	if changed {
		g.updatePicker()
	}
	g.mu.Unlock()
	if changed && g.options.OnHealth != nil {
		g.options.OnHealth(e.addr, err)
	}
}

// countCheck reports whether the check changed the endpoint's health. It requires mu.
func (e *Endpoint) countCheck(passed bool) (changed bool) {
	if passed != e.unhealthy.Load() { // its current health
		e.checksAgainst = 0
		return false
	}
	e.checksAgainst++
	if !passed && e.checksAgainst < unhealthyAfter || passed && e.checksAgainst < healthyAfter {
		return false
	}
	e.checksAgainst = 0
	e.unhealthy.Store(!passed)
	return true
}

func noDescriptors(err error) bool {
	var dial *DialError
	return errors.As(err, &dial) && dial.Kind == KindNoDescriptors
}

package proxy

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Probe says how an upstream is probed while its breaker is not closed. The zero
// value: by connecting after failed dials, else by one held request.
// docs/decisions/0007-probe-path.md tells the rules and their reasons.
type Probe struct {
	Path string // asked for by GET; begins with "/", may have a query, holds only what a request line may
	Host string // for the Host field; "" is the upstream's own
}

// probeAgent is the User-Agent of a probe, so that logs of the upstream tell it
// from clients.
const probeAgent = "retryproxy-probe"

// request renders the probe, nil where there is no path. Each has its own
// connection, since those of the pool are from before the outage.
func (p Probe) request(upstreamHost string) []byte {
	if p.Path == "" {
		return nil
	}
	if p.Host == "" {
		p.Host = upstreamHost
	}
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\nConnection: close\r\n\r\n", p.Path, p.Host, probeAgent)
}

// probeCounts are the probes by GET that ended, by result.
type probeCounts [policy.NumProbeResults]atomic.Uint64

func (c *probeCounts) read() (n [policy.NumProbeResults]uint64) {
	for i := range c {
		n[i] = c[i].Load()
	}
	return n
}

// probe takes the probe that is due: by GET where there is a path, by
// connecting where connections were what failed, so that one tells enough.
// Otherwise the probe is left to a request.
func (d *admissionQueue) probe() {
	by := d.probeByRequest
	if d.probeRequest == nil {
		by = d.probeByConnecting
		if why := d.guard.State().OpenedBy; why != policy.OpenedByRefused && why != policy.OpenedByDial && why != policy.OpenedByLost {
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOver() {
		return
	}
	if permit, due := d.guard.Probe(d.elapsed()); due {
		d.probes.Go(func() { by(permit) })
	}
}

// probeByConnecting brings a connection that is the first in the pool.
func (d *admissionQueue) probeByConnecting(permit policy.Permit) {
	up, err := d.dialOnce(d.dialCtx, upstream.GetOptions{Fresh: true, ForceLookup: true})
	e := policy.AttemptEnd{Kind: policy.Connected}
	if err == nil {
		up.Release(0)
	} else {
		e.Kind = dialEndKind(err)
	}
	d.handleSignal(d.guard.Release(permit, d.elapsed(), e))
}

// probeByRequest sends GET. Nothing but lateResponseTimeout ends its wait: the Guard has
// another probe sent when this one hangs, and its late response counts all the same.
func (d *admissionQueue) probeByRequest(permit policy.Permit) {
	up, e := d.sendProbeRequest(permit)
	result, e := policy.ClassifyProbe(e)
	d.probeStats[result].Add(1)
	d.handleSignal(d.guard.Release(permit, d.elapsed(), e))
	if up != nil {
		d.endProbe(up)
	}
}

// sendProbeRequest sends the probe and waits for the response's headers. The connection is nil
// where there was none.
func (d *admissionQueue) sendProbeRequest(permit policy.Permit) (*upstream.Conn, policy.AttemptEnd) {
	up, err := d.pool.Get(d.dialCtx, upstream.GetOptions{Fresh: true, ForceLookup: true})
	if err != nil {
		return nil, policy.AttemptEnd{Kind: dialEndKind(err)}
	}
	d.watchProbe(permit, up.Addr)
	d.mu.Lock()
	going := d.addLateProbe(up)
	d.mu.Unlock()
	if !going {
		return up, policy.AttemptEnd{Kind: policy.Reset}
	}
	if _, err := up.Write(d.probeRequest); err != nil {
		return up, policy.AttemptEnd{Kind: policy.Reset}
	}
	return up, readLateResponse(up)
}

// probeRest bounds what is read behind a probe's head, so that the upstream is
// not reset while it writes its response.
const (
	probeRestBytes = 64 << 10
	probeRestTime  = time.Second
)

// endProbe ends the connection of a probe by GET.
func (d *admissionQueue) endProbe(up *upstream.Conn) {
	_ = up.SetDeadline(time.Now().Add(probeRestTime))
	buf := getBuffer(smallBuffer)
	defer putBuffer(buf)
	for read := 0; read < probeRestBytes; {
		n, err := up.Read(buf)
		if err != nil {
			break
		}
		read += n
	}
	d.removeLateProbe(up)
}

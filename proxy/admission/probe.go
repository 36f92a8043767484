package admission

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Probe configures how an upstream is probed while its breaker is not closed. If Path is empty, a
// probe connects if dials failed, and otherwise is one queued request. See
// docs/decisions/0007-probe-path.md.
type Probe struct {
	Path string // of the GET; begins with "/", may have a query, contains only what a request line may
	Host string // the Host header; "" means the upstream's own
}

// probeAgent is the User-Agent of a probe, so that it can be recognised in the upstream's logs.
const probeAgent = "retryproxy-probe"

// request renders the probe, or returns nil if there is no path. Each probe has its own
// connection, because those in the pool are older than the outage.
func (p Probe) request(upstreamHost string) []byte {
	if p.Path == "" {
		return nil
	}
	if p.Host == "" {
		p.Host = upstreamHost
	}
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\nConnection: close\r\n\r\n", p.Path, p.Host, probeAgent)
}

// probeCounts counts the finished probes by GET, by result.
type probeCounts [breaker.NumProbeResults]atomic.Uint64

// Read returns the counts.
func (c *probeCounts) Read() (n [breaker.NumProbeResults]uint64) {
	for i := range c {
		n[i] = c[i].Load()
	}
	return n
}

// probe sends the probe that is due: by GET if there is a path, or by connecting if dials failed.
// Otherwise a queued request is the probe.
func (d *Queue) probe() {
	by := d.probeByRequest
	if d.ProbeRequest == nil {
		by = d.probeByConnecting
		if why := d.Guard.State().OpenedBy; why != breaker.OpenedByRefused && why != breaker.OpenedByDial && why != breaker.OpenedByLost {
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOver() {
		return
	}
	if permit, due := d.Guard.Probe(d.elapsed()); due {
		d.probes.Go(func() { by(permit) })
	}
}

// probeByConnecting opens a connection and puts it into the pool.
func (d *Queue) probeByConnecting(permit breaker.Permit) {
	up, err := d.dialOnce(d.dialCtx, upstream.GetOptions{Fresh: true, ForceLookup: true})
	if err == nil {
		up.Release(0)
	}
	d.HandleSignal(d.Guard.Release(permit, d.elapsed(), breaker.AttemptEnd{Kind: probeDialEnd(err)}))
}

// probeDialEnd returns what the dial of a probe shows about the upstream. If the certificate cannot
// be verified, the upstream accepts connections again, and requests fail at once.
func probeDialEnd(err error) breaker.EndKind {
	var dial *upstream.DialError
	if err == nil || errors.As(err, &dial) && dial.Untrusted {
		return breaker.Connected
	}
	return DialEndKind(err)
}

// probeByRequest sends a GET. Only LateResponseTimeout ends its wait. If it hangs, the Guard has
// another probe sent, and a late response still counts.
func (d *Queue) probeByRequest(permit breaker.Permit) {
	up, e := d.sendProbeRequest(permit)
	result, e := breaker.ClassifyProbe(e)
	d.ProbeStats[result].Add(1)
	d.HandleSignal(d.Guard.Release(permit, d.elapsed(), e))
	if up != nil {
		d.endProbe(up)
	}
}

// sendProbeRequest sends the probe and waits for the response headers. The connection is nil if
// the dial failed.
func (d *Queue) sendProbeRequest(permit breaker.Permit) (*upstream.Conn, breaker.AttemptEnd) {
	up, err := d.pool.Get(d.dialCtx, upstream.GetOptions{Fresh: true, ForceLookup: true})
	if err != nil {
		return nil, breaker.AttemptEnd{Kind: probeDialEnd(err)}
	}
	d.WatchProbe(permit, up.Addr)
	d.mu.Lock()
	going := d.addLateProbe(up)
	d.mu.Unlock()
	if !going {
		return up, breaker.AttemptEnd{Kind: breaker.Reset}
	}
	if _, err := up.Write(d.ProbeRequest); err != nil {
		return up, breaker.AttemptEnd{Kind: breaker.Reset}
	}
	return up, readLateResponse(up)
}

// probeRest bounds what is read after a probe's headers, so that the upstream is not reset while
// it writes its response.
const (
	probeRestBytes = 64 << 10
	probeRestTime  = time.Second
)

// endProbe ends the connection of a probe by GET.
func (d *Queue) endProbe(up *upstream.Conn) {
	_ = up.SetDeadline(time.Now().Add(probeRestTime))
	buf := buffer.Get(buffer.Small)
	defer buffer.Put(buf)
	for read := 0; read < probeRestBytes; {
		n, err := up.Read(buf)
		if err != nil {
			break
		}
		read += n
	}
	d.removeLateProbe(up)
}

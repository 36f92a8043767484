package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/printable"
)

const (
	// Keep-alive probes detect a vanished peer after 25 s, within the default request
	// timeout. Without an attempt timeout they distinguish it from a slow peer, so that the
	// request is retried. They also keep an idle connection known to the NATs on the path.
	probeIdle     = 10 * time.Second
	probeInterval = 5 * time.Second
	probeCount    = 3
)

// dialer has no timeout, since every dial has a context with one. Package net sets
// TCP_NODELAY on every connection.
var dialer = net.Dialer{
	FallbackDelay: -1,
	KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: probeIdle, Interval: probeInterval, Count: probeCount,
	},
}

// segmentBytes is the data of a TCP segment on Ethernet. Linux lets a socket buffer some tens of segments that
// its peer does not read. Those of loopback have 64 KiB: it took 3.8 MiB of a response that nobody read, and
// with these 0.2 MiB. A bulk transfer over loopback then takes twice the CPU time.
const segmentBytes = 1460

// boundedDialer is the dialer for GetOptions.BoundUnsent.
var boundedDialer = func() net.Dialer {
	d := dialer
	d.Control = func(_, _ string, raw syscall.RawConn) error {
		rawsocket.BoundSegments(raw, segmentBytes)
		return nil
	}
	return d
}()

// dial makes a new connection, counted as active. It ends at timeout or with ctx. Its error is a
// *DialError.
func (p *Pool) dial(ctx context.Context, timeout time.Duration, o *GetOptions) (*Conn, error) {
	p.dialing.Add(1)
	defer p.dialing.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := p.dialOne(ctx, o)
	if err != nil {
		p.dialErrors[err.Kind].Add(1)
		return nil, err
	}
	p.dials.Add(1)
	c.bounded = o.BoundUnsent && c.stream == nil
	return c, nil
}

// dialOne connects and, with TLS, performs the handshake.
func (p *Pool) dialOne(ctx context.Context, o *GetOptions) (*Conn, *DialError) {
	addr := p.target.Address
	wire, err := p.connect(ctx, addr, o.BoundUnsent)
	if err != nil {
		return nil, &DialError{Kind: classify(err), Addr: addr, Err: stripDialPrefix(err)}
	}
	if p.target.TLS == nil {
		return p.makeReady(addr, wire, nil)
	}
	c, below, err := p.handshake(ctx, wire, o.HTTP1)
	if err != nil {
		return nil, &DialError{Kind: classifyHandshake(err), Addr: addr, Untrusted: isUntrusted(err), Err: err}
	}
	return p.makeReady(addr, c, below)
}

// makeReady wraps a connection: itself, or the first HTTP/2 stream on it.
func (p *Pool) makeReady(addr string, c net.Conn, below *tlsWire) (*Conn, *DialError) {
	if p.http2 == nil {
		return p.newConn(addr, c, below), nil
	}
	two, err := p.http2.usesHTTP2(c)
	if err != nil {
		_ = c.Close()
		return nil, &DialError{Kind: KindTLS, Addr: addr, Err: err}
	}
	if !two {
		return p.newConn(addr, c, below), nil
	}
	under := c
	if below != nil {
		under = below.Conn
	}
	return p.http2.firstStream(addr, c, under), nil
}

func (p *Pool) connect(ctx context.Context, addr string, boundUnsent bool) (net.Conn, error) {
	dial := dialer.DialContext
	if boundUnsent {
		dial = boundedDialer.DialContext
	}
	if p.target.Dial != nil {
		dial = p.target.Dial
	}
	c, err := dial(ctx, p.target.Network, addr)
	if err != nil {
		return nil, err
	}
	c = rawsocket.Wrap(c)
	rawsocket.EndUnacknowledged(c)
	return c, nil
}

// stripDialPrefix removes package net's "dial tcp 10.0.0.7:80: ", since DialError adds the
// same.
func stripDialPrefix(err error) error {
	if op, ok := err.(*net.OpError); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// DialKind is why no connection could be made. It is a closed set, meant for a metric
// label.
type DialKind uint8

// The kinds of dial errors.
const (
	KindOther         DialKind = iota // none of those below, for example no permission on a unix socket
	KindRefused                       // nothing accepts: refused or reset (even just after the connect), no socket file, a full queue of a unix socket
	KindTimeout                       // GetOptions.DialTimeout or the context's deadline passed while connecting or in the TLS handshake
	KindDNS                           // the name could not be resolved, or not in time
	KindUnreachable                   // no route to the host or network, or no local address for it
	KindTLS                           // connected, but the TLS handshake failed: certificate, name, protocol, or cut off
	KindCanceled                      // the context was canceled; no evidence about the upstream
	KindNoDescriptors                 // this process or machine has no file descriptor left; no evidence about the upstream
	KindNoStream                      // no stream was free on as many HTTP/2 connections as there may be; no evidence about the upstream

	NumDialKinds = iota // number of kinds: valid kinds are in [0, NumDialKinds)
)

var kindLabels = [NumDialKinds]string{
	KindOther:         "other",
	KindRefused:       "refused",
	KindTimeout:       "timeout",
	KindDNS:           "dns",
	KindUnreachable:   "unreachable",
	KindTLS:           "tls",
	KindCanceled:      "canceled",
	KindNoDescriptors: "no_descriptors",
	KindNoStream:      "no_stream",
}

// String returns the metric label: lower case, words joined by underscores. For a value
// outside the set it returns "other".
func (k DialKind) String() string {
	if int(k) >= len(kindLabels) {
		return kindLabels[KindOther]
	}
	return kindLabels[k]
}

// DialError is the error of every failed dial. No byte of a request was sent. It is
// immutable.
type DialError struct {
	// Kind is that of the address tried last.
	Kind DialKind
	// Addr is the address tried last, "ip:port" or a socket's path, usable as
	// GetOptions.Avoid. It is the target's "host:port" if that was not resolved.
	Addr string
	// Untrusted means that the certificate of every address tried could not be verified: its
	// CA is unknown, it is for another name, or it is not valid now. Dialling again does not
	// help.
	Untrusted bool
	// Err is the cause. If several addresses were tried, it joins all their errors
	// (errors.Join) in order.
	Err error
}

// Error returns the action, the address and the cause.
func (e *DialError) Error() string { return "dial upstream " + e.Addr + ": " + e.Err.Error() }

// maxText limits Text: a certificate's error may quote any number of names from the
// upstream.
const maxText = 300

// Text returns the cause in one line of at most 300 bytes, safe to show: the text of x509,
// the resolver or the errno. Unprintable characters are replaced, since some of it comes
// from the upstream.
func (e *DialError) Text() string { return printable.Text(e.Err.Error(), maxText) }

// Unwrap returns the cause, for errors.Is and errors.As.
func (e *DialError) Unwrap() error { return e.Err }

// classify returns the kind of a connect error, by type and errno, never by text. The order
// matters: a canceled dial may also look like a timeout, and EAGAIN (a full queue of a unix
// socket) reports Timeout.
func classify(err error) DialKind {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return KindCanceled
	case isAny(err, syscall.EMFILE, syscall.ENFILE):
		return KindNoDescriptors
	case isAny(err, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ENOENT, syscall.EAGAIN):
		return KindRefused
	case errors.As(err, &dns):
		return KindDNS
	case isAny(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
		syscall.EHOSTDOWN, syscall.EADDRNOTAVAIL):
		return KindUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return KindTimeout
	}
	return KindOther
}

// classifyHandshake classifies errors of the TLS handshake: anything except a cancellation
// or a timeout is a TLS failure, a reset included.
func classifyHandshake(err error) DialKind {
	switch k := classify(err); k {
	case KindCanceled, KindTimeout:
		return k
	}
	return KindTLS
}

// isUntrusted reports whether a handshake failed because of the server's certificate.
func isUntrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate)
}

// classifyLookup classifies errors of the resolver: anything except a cancellation or
// missing descriptors is a DNS failure, a timeout included.
func classifyLookup(ctx context.Context, err error) DialKind {
	if errors.Is(ctx.Err(), context.Canceled) {
		return KindCanceled
	}
	if k := classify(err); k == KindCanceled || k == KindNoDescriptors {
		return k
	}
	return KindDNS
}

func isAny(err error, codes ...syscall.Errno) bool {
	for _, c := range codes {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

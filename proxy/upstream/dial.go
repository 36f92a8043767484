package upstream

import (
	"context"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
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

// dial makes a new connection, counted as active. It ends at timeout or with ctx. Its error is a
// *DialError.
func (p *Pool) dial(ctx context.Context, timeout time.Duration, http1 bool) (*Conn, error) {
	p.dialing.Add(1)
	defer p.dialing.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := p.dialOne(ctx, http1)
	if err != nil {
		p.dialErrors[err.Kind].Add(1)
		return nil, err
	}
	p.dials.Add(1)
	return c, nil
}

// dialOne connects and, with TLS, performs the handshake.
func (p *Pool) dialOne(ctx context.Context, http1 bool) (*Conn, *DialError) {
	addr := p.target.Address
	wire, err := p.connect(ctx, addr)
	if err != nil {
		return nil, &DialError{Kind: classify(err), Addr: addr, Err: stripDialPrefix(err)}
	}
	if p.target.TLS == nil {
		return p.makeReady(ctx, addr, wire, nil)
	}
	c, below, err := p.handshake(ctx, wire, http1)
	if err != nil {
		return nil, &DialError{Kind: classifyHandshake(err), Addr: addr, Untrusted: isUntrusted(err), Err: err}
	}
	return p.makeReady(ctx, addr, c, below)
}

// makeReady wraps a connection: itself, or the first HTTP/2 stream on it.
func (p *Pool) makeReady(ctx context.Context, addr string, c net.Conn, below *tlsWire) (*Conn, *DialError) {
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
	conn, err := p.http2.firstStream(ctx, addr, c)
	if err != nil {
		return nil, &DialError{Kind: classify(err), Addr: addr, Err: err}
	}
	return conn, nil
}

func (p *Pool) connect(ctx context.Context, addr string) (net.Conn, error) {
	dial := dialer.DialContext
	if p.target.Dial != nil {
		dial = p.target.Dial
	}
	c, err := dial(ctx, p.target.Network, addr)
	if err != nil {
		return nil, err
	}
	return rawsocket.Wrap(c), nil
}

// stripDialPrefix removes package net's "dial tcp 10.0.0.7:80: ", since DialError adds the
// same.
func stripDialPrefix(err error) error {
	if op, ok := err.(*net.OpError); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

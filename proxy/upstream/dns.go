package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// maxHosts bounds the hosts that SRV records name.
const maxHosts = 64

// dnsLookup is one lookup by package net's resolver, which knows /etc/hosts,
// /etc/resolv.conf, search lists, retries and TCP, but does not tell how long an
// answer holds: that is read from the messages on their way.
// docs/decisions/0012-several-addresses.md says why so.
type dnsLookup struct {
	server string                // asked in place of the configured ones, unless ""
	minTTL atomic.Uint32         // TTL in seconds, plus one; 0: none was seen
	failed atomic.Pointer[error] // why a server could not be asked, which the resolver tells as text only
}

// resolver begins a lookup of its own: the resolver of package net otherwise
// joins those of one name.
func (a *dnsLookup) resolver() *net.Resolver { return &net.Resolver{PreferGo: true, Dial: a.dial} }

// ttl is how long everything heard so far holds.
func (a *dnsLookup) ttl() time.Duration {
	return time.Duration(max(a.minTTL.Load(), 1)-1) * time.Second
}

// host looks up addresses.
func (a *dnsLookup) host(ctx context.Context, host, port string) resolution {
	ips, err := a.resolver().LookupNetIP(ctx, "ip", host)
	return newResolution(host, port, ips, a.cause(err), a.ttl())
}

// cause is err with what kept a server from being asked, if anything did.
func (a *dnsLookup) cause(err error) error {
	if failed := a.failed.Load(); err != nil && failed != nil {
		return errors.Join(err, *failed)
	}
	return err
}

// service looks up SRV records and the addresses of the hosts that they name.
// Hosts that have none are ejected.
func (a *dnsLookup) service(ctx context.Context, name string) resolution {
	_, records, err := a.resolver().LookupSRV(ctx, "", "", name)
	if len(records) > maxHosts {
		records = records[:maxHosts]
	}
	if err == nil && len(records) == 0 || len(records) == 1 && records[0].Target == "." { // "decidedly not available", RFC 2782
		err = &net.DNSError{Err: "no such service", Name: name, IsNotFound: true}
	}
	if err != nil {
		return resolution{err: a.cause(err)}
	}
	hosts := make([]resolution, len(records))
	var all sync.WaitGroup
	for i, r := range records {
		all.Go(func() { hosts[i] = a.host(ctx, r.Target, strconv.Itoa(int(r.Port))) })
	}
	all.Wait()
	var sum resolution
	for i, h := range hosts {
		if h.err != nil {
			err = h.err
			continue
		}
		for _, p := range h.addrs {
			p.priority, p.weight = records[i].Priority, share(records[i].Weight, len(h.addrs))
			sum.addrs = append(sum.addrs, p)
		}
	}
	if sum.ttl = a.ttl(); len(sum.addrs) == 0 {
		sum.err = err
	}
	return sum
}

// share is the weight of one of n addresses of a host. A weight of 0 is for
// hosts that are hardly to be chosen beside others (RFC 2782).
func share(weight uint16, n int) uint32 { return max(uint32(weight)*100/uint32(n), 1) }

// dial connects to a server, so that its responses are heard.
func (a *dnsLookup) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if a.server != "" {
		address = a.server
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		a.failed.Store(&err)
		return nil, err
	}
	if packets, ok := c.(*net.UDPConn); ok {
		return &ttlPacketConn{packets, a}, nil
	}
	return &ttlStreamConn{Conn: c, lookup: a}, nil
}

// noteTTL notes the lowest TTL among a message's answers.
func (a *dnsLookup) noteTTL(message []byte) {
	var p dnsmessage.Parser
	if h, err := p.Start(message); err != nil || !h.Response || p.SkipAllQuestions() != nil {
		return
	}
	for {
		r, err := p.AnswerHeader()
		if err != nil || p.SkipAnswer() != nil {
			return
		}
		for was := a.minTTL.Load(); was == 0 || r.TTL < was-1; was = a.minTTL.Load() {
			if a.minTTL.CompareAndSwap(was, min(r.TTL, 1<<31)+1) {
				break
			}
		}
	}
}

// ttlPacketConn is a connection by UDP: a read brings a message. It is a
// net.PacketConn, by which the resolver knows that.
type ttlPacketConn struct {
	*net.UDPConn
	lookup *dnsLookup
}

func (c *ttlPacketConn) Read(p []byte) (int, error) {
	n, err := c.UDPConn.Read(p)
	c.lookup.noteTTL(p[:n])
	return n, err
}

// ttlStreamConn is a connection by TCP: a message has its length in two bytes before it.
type ttlStreamConn struct {
	net.Conn
	lookup *dnsLookup
	buf    []byte
}

func (c *ttlStreamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.buf = append(c.buf, p[:n]...)
	for len(c.buf) >= 2 {
		end := 2 + int(binary.BigEndian.Uint16(c.buf))
		if len(c.buf) < end {
			break
		}
		c.lookup.noteTTL(c.buf[2:end])
		c.buf = c.buf[end:]
	}
	return n, err
}

var _ net.PacketConn = (*ttlPacketConn)(nil)

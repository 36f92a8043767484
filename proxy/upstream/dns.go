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

// maxHosts limits the number of hosts from SRV records.
const maxHosts = 64

// dnsLookup is one lookup by package net's resolver. That resolver supports /etc/hosts,
// /etc/resolv.conf, search lists, retries and TCP, but does not return the TTL. So the TTL
// is read from the messages on the wire; see docs/decisions/0012-several-addresses.md.
type dnsLookup struct {
	server string                // used in place of the configured servers, unless ""
	minTTL atomic.Uint32         // TTL in seconds, plus one; 0: none was seen
	failed atomic.Pointer[error] // why a server could not be reached, which the resolver only reports as text
	asked  sync.Map              // the questions sent by UDP so far, without their IDs
}

// resolver returns a resolver for this lookup alone: the shared one merges lookups of one
// name.
func (a *dnsLookup) resolver() *net.Resolver { return &net.Resolver{PreferGo: true, Dial: a.dial} }

// ttl returns how long the responses so far are valid.
func (a *dnsLookup) ttl() time.Duration {
	return time.Duration(max(a.minTTL.Load(), 1)-1) * time.Second
}

// host looks up the addresses of host.
func (a *dnsLookup) host(ctx context.Context, host, port string) resolution {
	ips, err := a.resolver().LookupNetIP(ctx, "ip", host)
	return newResolution(host, port, ips, a.cause(err), a.ttl())
}

// cause returns err, joined with the reason why a server could not be reached, if there is
// one.
func (a *dnsLookup) cause(err error) error {
	if failed := a.failed.Load(); err != nil && failed != nil {
		return errors.Join(err, *failed)
	}
	return err
}

// service looks up SRV records and the addresses of their hosts. Hosts without an address
// are left out.
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

// share returns the weight of one of n addresses of a host. A weight of 0 means that the
// host is hardly ever chosen beside others (RFC 2782).
func share(weight uint16, n int) uint32 { return max(uint32(weight)*100/uint32(n), 1) }

// dial connects to a DNS server and observes its responses.
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
		return &ttlPacketConn{UDPConn: packets, lookup: a}, nil
	}
	return &ttlStreamConn{Conn: c, lookup: a}, nil
}

// noteTTL records the lowest TTL among a message's answers.
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

// askAgainAfter is when a question by UDP is asked again for the first time. Package net would wait
// for 5 s, and all dials wait for the one lookup: a lost packet would delay them that long.
const askAgainAfter = time.Second

// ttlPacketConn observes a UDP connection: each read and each write is one message. It is a
// net.PacketConn, by which the resolver recognises UDP.
type ttlPacketConn struct {
	*net.UDPConn
	lookup *dnsLookup
	until  time.Time // when the resolver gives up this connection
}

func (c *ttlPacketConn) SetDeadline(t time.Time) error {
	c.until = t
	return c.UDPConn.SetDeadline(t)
}

// Write sends a question. If it is sent for the first time, its response has askAgainAfter.
func (c *ttlPacketConn) Write(p []byte) (int, error) {
	const idBytes = 2
	_, again := c.lookup.asked.LoadOrStore(string(p[min(idBytes, len(p)):]), true)
	if soon := time.Now().Add(askAgainAfter); !again && soon.Before(c.until) {
		if err := c.SetReadDeadline(soon); err != nil {
			return 0, err
		}
	}
	return c.UDPConn.Write(p)
}

func (c *ttlPacketConn) Read(p []byte) (int, error) {
	n, err := c.UDPConn.Read(p)
	c.lookup.noteTTL(p[:n])
	return n, err
}

// ttlStreamConn observes a TCP connection: each message is preceded by its length in two
// bytes.
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

// Package dnstest provides a small DNS server for tests. It responds by UDP and TCP from a zone
// that the test can change while it runs. golang.org/x/net reads and writes the messages; miekg/dns
// would save some 60 of 249 lines, for one more module.
package dnstest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server runs until the test ends. It is safe for concurrent use.
type Server struct {
	Addr string // "ip:port"

	udp net.PacketConn
	tcp net.Listener
	wg  sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	hosts       map[string]hosts
	records     map[string]services
	silent      bool
	truncateUDP bool
	queries     map[string]int
	conns       map[net.Conn]struct{}
}

type hosts struct {
	ttl uint32
	ips []netip.Addr
}

type services struct {
	ttl  uint32
	list []Service
}

// Service is an SRV record.
type Service struct {
	Host             string
	Port             uint16
	Priority, Weight uint16
}

// Start starts a server with an empty zone.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{hosts: map[string]hosts{}, records: map[string]services{}, queries: map[string]int{}, conns: map[net.Conn]struct{}{}}
	s.listen(t)
	s.Addr = s.udp.LocalAddr().String()
	s.wg.Go(s.serveUDP)
	s.wg.Go(s.serveTCP)
	t.Cleanup(s.stop)
	return s
}

// listen opens the same port for both protocols.
func (s *Server) listen(t testing.TB) {
	t.Helper()
	var err error
	for range 20 {
		if s.udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			break
		}
		if s.tcp, err = net.Listen("tcp", s.udp.LocalAddr().String()); err == nil {
			return
		}
		_ = s.udp.Close()
	}
	t.Fatal(err)
}

func (s *Server) stop() {
	_ = s.udp.Close()
	_ = s.tcp.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Host sets the addresses of a name and their TTL in seconds. Without ips the name exists
// but has no addresses.
func (s *Server) Host(name string, ttl uint32, ips ...string) {
	h := hosts{ttl: ttl}
	for _, ip := range ips {
		h.ips = append(h.ips, netip.MustParseAddr(ip))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[name+"."] = h
}

// Service sets the SRV records of a name.
func (s *Server) Service(name string, ttl uint32, list ...Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[name+"."] = services{ttl, list}
}

// SetSilent makes the server ignore queries, or respond again.
func (s *Server) SetSilent(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
}

// TruncateUDP truncates every response by UDP, so that clients retry by TCP.
func (s *Server) TruncateUDP() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.truncateUDP = true
}

// Queries returns how often addresses (of version 4) or services of the name were queried.
func (s *Server) Queries(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[name+"."]
}

func (s *Server) serveUDP() {
	buf := make([]byte, 4096)
	for {
		n, from, err := s.udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if reply := s.answer(buf[:n], true); reply != nil {
			_, _ = s.udp.WriteTo(reply, from)
		}
	}
}

func (s *Server) serveTCP() {
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() { s.serveConn(c) })
	}
}

func (s *Server) serveConn(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		reply := s.answer(question, false)
		for _, b := range append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...) { // byte by byte, as TCP may
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
		}
	}
}

// answer returns the reply to a message, nil for none.
func (s *Server) answer(question []byte, udp bool) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToLower(q.Name.String())
	if q.Type != dnsmessage.TypeAAAA {
		s.queries[name]++
	}
	if s.silent {
		return nil
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: h.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	known, isHost := s.hosts[name]
	offered, isService := s.records[name]
	switch {
	case udp && s.truncateUDP:
		m.Truncated = true
	case isHost:
		m.Answers = known.answers(q)
	case isService:
		m.Answers = offered.answers(q)
	default:
		m.RCode = dnsmessage.RCodeNameError
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func (h hosts) answers(q dnsmessage.Question) (all []dnsmessage.Resource) {
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: h.ttl}
	for _, ip := range h.ips {
		switch {
		case ip.Is4() && q.Type == dnsmessage.TypeA:
			all = append(all, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: ip.As4()}})
		case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
			all = append(all, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	return all
}

func (r services) answers(q dnsmessage.Question) (all []dnsmessage.Resource) {
	if q.Type != dnsmessage.TypeSRV {
		return nil
	}
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: r.ttl}
	for _, s := range r.list {
		all = append(all, dnsmessage.Resource{Header: header, Body: &dnsmessage.SRVResource{
			Priority: s.Priority, Weight: s.Weight, Port: s.Port, Target: dnsmessage.MustNewName(s.Host + "."),
		}})
	}
	return all
}

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// comeAgain is how long attackers wait before they connect again. Without it this would be an attack on the CPU.
const comeAgain = time.Second

// memoryAttacks run against a process in a cgroup with as little memory as a sidecar may have. It must not be
// killed, and new clients must be served within a second.
func memoryAttacks() (all []attack) {
	fill := func(path string) func(f *frames) { return func(f *frames) { f.fill(path) } }
	for _, limit := range []int64{64 * mib, 128 * mib, 256 * mib} {
		for _, a := range []struct {
			name       string
			conns      int
			connection func(*attacker) error
			secure     bool // over TLS
		}{ // as many streams as may be, once more every second: some have been refused
			{"HTTP/2, 128 responses unread on each connection", 40, script{settings: window(0), every: comeAgain, pause: comeAgain, again: fill("/medium")}.run, false},
			{"HTTP/2, 128 requests without a response on each connection", 40, script{every: comeAgain, pause: comeAgain, again: fill("/deaf")}.run, false},
			{"slow readers", 1600, slowReader, false},
			{"TLS, idle", 1600, idleTLS, true},
		} {
			all = append(all, attack{name: fmt.Sprintf("%d MiB: %s", limit/mib, a.name), conns: a.conns, bound: limit, why: "the cgroup",
				prepare: func(st *stage) error { st.connection, st.secure = a.connection, a.secure; return st.confine(limit) }})
		}
	}
	return all
}

// confine puts the proxy into a cgroup and adds bystanders.
func (st *stage) confine(limit int64) error {
	g, err := st.NewGroup(fmt.Sprintf("attacks-%d", os.Getpid()), limit)
	if err != nil {
		return err
	}
	st.spec.By = g.By()
	if st.secure {
		file := st.TempDir() + "/both.pem"
		if err := rig.WriteCertificate(file, net.IPv4(127, 0, 0, 1), time.Now().Add(time.Hour)); err != nil {
			return err
		}
		st.set("RETRYPROXY_TLS_CERT=" + file)
	}
	st.needs = needs{bystanders: 5}
	others := newOthers(st.secure)
	st.beside = func(ctx context.Context, p *rig.Proxy) {
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			err := others.ask(n, p.Addr)
			others.close()
			took := time.Since(began)
			if err != nil && ctx.Err() == nil {
				st.Add("a bystander was not served after %v: %v", took, err)
			}
			if st.Count(bystanders, 1); took > servedWithin {
				st.Count(late, 1)
			}
			st.Longest(bystanders, took)
			rig.Sleep(ctx, bystanderEvery)
		}
	}
	st.judge = func(p *rig.Proxy) string {
		if st.Counted(late)*100 > st.Counted(bystanders)*mostLate {
			st.Add("%d of %d bystanders were served after more than %v", st.Counted(late), st.Counted(bystanders), servedWithin)
		}
		if kills, err := g.Kills(); err != nil || kills > 0 {
			st.Add("killed for its memory %d times (%v)", kills, err)
		}
		peak, _ := g.Peak()
		m, err := p.Scrape()
		if err != nil {
			st.Add("no metrics: %v", err)
		}
		return fmt.Sprintf("%d bystanders, %d of them later than %v, the slowest after %v; %.0f evicted; peak %.1f of %d MiB (cgroup version %d)", st.Counted(bystanders), st.Counted(late), servedWithin,
			st.Longest(bystanders, 0).Round(time.Millisecond), m.Sum("clients_evicted_total"), mibOf(peak), limit/mib, g.Version)
	}
	return nil
}

// bystanders open a new connection for each request, over HTTP/1.1 and HTTP/2 in turn.
const (
	bystanders     = "bystanders"
	late           = "later"
	bystanderEvery = 100 * time.Millisecond
	servedWithin   = time.Second
	// mostLate percent may be later, because the attackers use the same cores. None may be refused.
	mostLate = 2
)

func slowReader(s *attacker) error {
	err := s.begin(s.addr, "GET /large HTTP/1.1\r\nHost: bench.test\r\n\r\n", func(nc net.Conn) error {
		_ = nc.(*net.TCPConn).SetReadBuffer(4 * kib) // else the attack is on the cores, with megabytes for each one's kernel
		var p [kib]byte
		return s.every(time.Second, func() error { _, err := nc.Read(p[:]); return err })
	})
	rig.Sleep(s, comeAgain)
	return err
}

// handshakeAgain is comeAgain for TLS clients. 1600 handshakes a second would be an attack on the CPU.
const handshakeAgain = 10 * time.Second

func idleTLS(s *attacker) error {
	err := s.begin(s.addr, "", func(nc net.Conn) error {
		c := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // it is signed by itself
		if err := c.HandshakeContext(s); err != nil {
			return err
		}
		s.sent.Add(1)
		_, err := c.Read(make([]byte, 1))
		return err
	})
	rig.Sleep(s, handshakeAgain)
	return err
}

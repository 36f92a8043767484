package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// adminAttacks are attacks on the admin listener. Its probes must be answered throughout. Tests of
// internal/admin show that it refuses requests from other sites.
var adminAttacks = []attack{
	{name: "admin: connections, slow heads, unread answers", conns: 400, bound: baseMemory + 2*128*perSlow, why: "128 connections and answers", prepare: adminFlood},
	{name: "admin: requests without their bodies", conns: rig.AtMost(2000), bound: baseMemory + 2*128*perSlow, why: "128 connections and answers", prepare: bodilessFlood},
}

// bodiless is a request whose headers are complete, so that it counts as one that is being answered.
const bodiless = "POST /retry-percent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n"

// bodilessFlood lets clients from another address have only requests that are hardest to tell from probes. Some slots
// are reserved for this machine, so its probes must get through in less time than a kubelet allows.
func bodilessFlood(st *stage) error {
	at := adminAt(st)
	st.connection = func(s *attacker) error { return s.hold(at[len(at)-1], bodiless) }
	st.probeDuring(at[:1], 20, 2*time.Second)
	return nil
}

// adminAt lets the admin listener listen on all addresses. It returns its loopback address and, if there is one, another.
func adminAt(st *stage) []string {
	st.spec.Admin = rig.FreeAddresses(1)[0]
	port := portOf(st.spec.Admin)
	st.set("RETRYPROXY_ADMIN_LISTEN=:" + port)
	at := []string{st.spec.Admin}
	if other := otherAddress(); other != "" {
		at = append(at, net.JoinHostPort(other, port))
	}
	return at
}

// adminFlood occupies the admin listener's connections in several ways. Probes and attackers have the same
// addresses, so the probes queue with the attackers.
func adminFlood(st *stage) error {
	at := adminAt(st)
	drips := func(begin, piece string, d time.Duration) func(*attacker, string) error {
		return func(s *attacker, addr string) error { return s.drip(addr, begin, piece, d) }
	}
	holds := func(says string) func(*attacker, string) error {
		return func(s *attacker, addr string) error { return s.hold(addr, says) }
	}
	slow := drips("GET /livez HTTP/1.1\r\nX-A: ", "a", 50*time.Millisecond)
	addr, flood := inTurn(at), inTurn([]func(*attacker, string) error{
		drips("", strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 50), time.Second), // responses that are not read
		holds(bodiless),
		holds("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"), // then idle
		holds(""),
		slow, slow, slow, // with an odd number, each of them comes to each address
	})
	st.connection = func(s *attacker) error { return flood()(s, addr()) }
	st.probeDuring(at, 1, 3*time.Second)
	return nil
}

// probeDuring sends probes to the addresses during the attack: at least n, none of which may take longer than most.
func (st *stage) probeDuring(at []string, n int64, most time.Duration) {
	st.needs = needs{probes: n}
	st.beside = func(ctx context.Context, _ *rig.Proxy) { st.probe(ctx, at) }
	st.judge = func(*rig.Proxy) string {
		slowest := st.Longest(probes, 0)
		if slowest > most {
			st.Add("a probe took %v", slowest)
		}
		return fmt.Sprintf("%d probes and scrapes, %d of them failed, the slowest after %v", st.Counted(probes), st.Counted(failedProbes), slowest.Round(time.Millisecond))
	}
}

// otherAddress returns an address of this machine that is not on loopback; "" if there is none.
func otherAddress() string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

const (
	probes       = "probes"
	failedProbes = "failed probes"
	// mostFailing failures in a row make a kubelet act, by default.
	mostFailing = 3
)

// probers open a new connection for each probe, so that no idle one is counted later.
var probers = http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// probe requests readiness, metrics and liveness in turn, as a kubelet and Prometheus do.
func (st *stage) probe(ctx context.Context, at []string) {
	paths := []string{"/readyz", "/metrics", "/livez"}
	inRow := 0
	for n := 0; rig.Sleep(ctx, 20*time.Millisecond); n++ {
		began := time.Now()
		res, err := probers.Get("http://" + at[n%len(at)] + paths[n%len(paths)])
		if err == nil {
			err = res.Body.Close()
		}
		if err == nil && res.StatusCode != http.StatusOK {
			err = errors.New(res.Status)
		}
		if inRow++; err == nil {
			inRow = 0
		} else if st.Count(failedProbes, 1); inRow == mostFailing {
			st.Add("%d probes in a row failed, the last %s: %v", inRow, paths[n%len(paths)], err)
		}
		st.Count(probes, 1)
		st.Longest(probes, time.Since(began))
	}
}

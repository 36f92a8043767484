package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// adminAttacks are on the listener beside the data path: what changes or shows
// anything is for this machine's own programs, and probes are answered throughout.
var adminAttacks = []attack{
	{name: "admin: orders from outside", conns: 8, bound: atEase + 8*perSlow, why: "8 requests", prepare: adminOrders},
	{name: "admin: connections, slow heads, unread answers", conns: 400, bound: atEase + 2*128*perSlow, why: "128 connections and answers", prepare: adminFlood},
}

// adminEverywhere has the admin listener on every address, as by default, and probes
// it. It returns an address on loopback, and another one of this machine if there is one.
func (st *stage) adminEverywhere() (at []string, err error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	port := portOf(l.Addr().String())
	st.set("RETRYPROXY_ADMIN_LISTEN=:" + port)
	st.spec.Admin = net.JoinHostPort("127.0.0.1", port)
	at = []string{st.spec.Admin}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() && len(at) == 1 {
			at = append(at, net.JoinHostPort(n.IP.String(), port))
		}
	}
	st.beside, st.needs = st.probe(at), needs{probes: 1}
	return at, nil
}

// private are the paths that are not for everyone.
var private = []string{"/retry-percent", "/drain", "/quit", "/config", "/", "/page/events", "/page/state.json", "/debug/pprof/", "/debug/pprof/profile?seconds=1", "/debug/pprof/heap", "/debug/pprof/cmdline"}

// disguises are fields of a request from elsewhere, that came by loopback all the same.
var disguises = []string{
	"Host: evil.example", "Host: localhost.evil.example", "Host: 127.0.0.1.evil.example", "Host: 2130706433", "Host: evil.example:9797", "Host: localhost, evil.example", "Host: localhost@evil.example",
	"Host: localhost\r\nOrigin: http://evil.example", "Host: localhost\r\nOrigin: null", "Host: localhost\r\nOrigin: http://localhost:1", "Host: localhost\r\nSec-Fetch-Site: cross-site", "Host: localhost\r\nSec-Fetch-Site: same-site",
	"Host: localhost\r\nX-Forwarded-For: 127.0.0.1", "Host: localhost\r\nX-Forwarded-For: ::1\r\nX-Real-Ip: 127.0.0.1", "Host: localhost\r\nForwarded: for=127.0.0.1", "Host: localhost\r\nVia: 1.1 localhost", "Host: localhost\r\nX-Forwarded-Host: localhost",
}

// ofOutside are fields of a request from another address.
var ofOutside = append([]string{"Host: localhost", "Host: 127.0.0.1", "Host: [::1]", "Host: localhost\r\nOrigin: http://localhost\r\nSec-Fetch-Site: same-origin", "Host: localhost\r\nClient-Ip: 127.0.0.1\r\nTrue-Client-Ip: 127.0.0.1"}, disguises...)

func adminOrders(st *stage) error {
	at, err := st.adminEverywhere()
	if err != nil {
		return err
	}
	order := []func() string{inTurn(orders(disguises)), inTurn(orders(ofOutside))}
	mild := inTurn(mildOrders())
	st.needs[refusals] = 20
	st.strike = func(s *strike) error {
		if rand.IntN(8) == 0 {
			return s.ask(st.spec.Admin, mild(), patience, func(*http.Response) {})
		}
		for i, addr := range at {
			if err := s.ask(addr, order[i](), patience, st.hearOrder); err != nil {
				return err
			}
		}
		return nil
	}
	from := []string{"by loopback in disguise; this machine has no other address", "from an address that is not loopback, and by loopback in disguise"}[len(at)-1]
	st.judge = func(p *rig.Proxy) string {
		if n, err := percent(p, ""); n != 100 {
			st.Add("retry-percent is %d (%v): an order took effect", n, err)
		}
		// The same order from this machine does: the judge above could have seen it.
		if n, err := percent(p, "0"); n != 0 || err != nil {
			st.Add("retry-percent from this machine: %d, %v", n, err)
		}
		return fmt.Sprintf("%d orders refused (%s), none took effect; %s", st.Counted(refusals), from, st.judgeProbes())
	}
	return nil
}

// mildOrders do nothing, from this machine too: they are orders by something else than a POST of JSON.
func mildOrders() (all []string) {
	const end = "\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	for _, path := range []string{"/drain", "/quit", "/retry-percent"} {
		for _, line := range []string{"GET %s HTTP/1.1\r\nX-HTTP-Method-Override: POST\r\nX-HTTP-Method: POST\r\nX-Method-Override: POST", "GET %s?_method=POST HTTP/1.1", "PUT %s HTTP/1.1\r\nContent-Length: 0", "post %s HTTP/1.1", "HEAD %s HTTP/1.1"} {
			all = append(all, fmt.Sprintf(line, path)+end)
		}
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded"} {
		all = append(all, "POST /retry-percent HTTP/1.1\r\nContent-Length: 1\r\nContent-Type: "+kind+end+"0")
	}
	return all
}

// orders are every private path by every method, with each of the fields.
func orders(fields []string) (all []string) {
	for _, f := range fields {
		for _, path := range private {
			for _, method := range []string{"POST", "GET"} {
				all = append(all, fmt.Sprintf("%s %s HTTP/1.1\r\n%s\r\nContent-Type: application/json\r\nContent-Length: 1\r\nConnection: close\r\n\r\n0", method, path, f))
			}
		}
	}
	return all
}

func (st *stage) hearOrder(h *http.Response) {
	if st.Count(refusals, 1); h.StatusCode/100 != 4 {
		st.Add("an order from outside was answered %d", h.StatusCode)
	}
}

// probers connect anew for each probe, so that none of their connections is counted later.
var probers = http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// probe asks for readiness and metrics, as a kubelet and Prometheus do: on connections of their own, one after the other.
func (st *stage) probe(at []string) func(ctx context.Context, p *rig.Proxy) {
	paths := []string{"/readyz", "/metrics", "/livez"}
	return func(ctx context.Context, p *rig.Proxy) {
		inRow := 0
		for n := 0; rig.Sleep(ctx, 20*time.Millisecond); n++ {
			began := time.Now()
			res, err := probers.Get("http://" + at[n%len(at)] + paths[n%len(paths)])
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
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
}

const (
	probes       = "probes"
	failedProbes = "failed probes"
	// mostFailing in a row have a kubelet act, by default.
	mostFailing = 3
	// mostProbe is how long a probe may take, on a machine whose cores the flood has as well.
	mostProbe = 5 * time.Second
)

func (st *stage) judgeProbes() string {
	slowest := st.Longest(probes, 0)
	if slowest > mostProbe {
		st.Add("a probe took %v", slowest)
	}
	return fmt.Sprintf("%d probes and scrapes, %d of them failed, the slowest after %v", st.Counted(probes), st.Counted(failedProbes), slowest.Round(time.Millisecond))
}

// percent asks for the share of retries, after changing it if to is not "".
func percent(p *rig.Proxy, to string) (n int, err error) {
	res, err := p.Admins.Get("http://localhost/retry-percent")
	if to != "" {
		res, err = p.Admins.Post("http://localhost/retry-percent", "application/json", strings.NewReader(to))
	}
	if err != nil {
		return -1, err
	}
	defer res.Body.Close()
	_, err = fmt.Fscan(res.Body, &n)
	return n, err
}

// adminFlood takes up the admin listener's connections in four ways.
func adminFlood(st *stage) error {
	to, err := st.adminEverywhere()
	if err != nil {
		return err
	}
	slow := func(s *strike, addr string) error {
		return s.drip(addr, "GET /livez HTTP/1.1\r\nX-A: ", "a", 50*time.Millisecond)
	}
	addr, flood := inTurn(to), inTurn([]func(s *strike, addr string) error{
		func(s *strike, addr string) error { // responses that are not read
			return s.drip(addr, "", strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 50), time.Second)
		},
		func(s *strike, addr string) error { // a body that does not come
			return s.hold(addr, "POST /retry-percent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n")
		},
		func(s *strike, addr string) error { // kept alive and idle
			return s.hold(addr, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
		},
		func(s *strike, addr string) error { return s.hold(addr, "") },
		slow, slow, slow, // with an odd number, each of them comes to each address
	})
	st.strike = func(s *strike) error { return flood()(s, addr()) }
	st.judge = func(*rig.Proxy) string { return st.judgeProbes() }
	return nil
}

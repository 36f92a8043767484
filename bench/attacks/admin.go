package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// adminAttacks are on the listener beside the data path: what changes or shows
// anything is for this machine's own programs, and probes are answered throughout.
var adminAttacks = []attack{
	{name: "admin: orders from outside", conns: 8, bound: atEase + 8*perSlow, why: "8 requests", prepare: adminOrders},
	{name: "admin: connections, slow heads, unread answers", conns: 400, bound: atEase + 2*128*perSlow, why: "128 connections and answers", prepare: adminFlood},
}

// orderStage notes answers of the admin listener.
type orderStage struct {
	findings
	outside string // an address of this machine that is not loopback, "" for none
	refused atomic.Int64
	slowest atomic.Int64 // of the probes, in nanoseconds
	probes  atomic.Int64
	failed  atomic.Int64 // of them
}

// adminEverywhere has the admin listener on every address, as by default.
func (g *orderStage) adminEverywhere(st *stage) error {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	defer l.Close()
	port := portOf(l.Addr().String())
	st.env = append(st.env, "RETRYPROXY_PPROF=true", "RETRYPROXY_ADMIN_LISTEN=:"+port)
	st.admin = net.JoinHostPort("127.0.0.1", port)
	if ip := outside(); ip != "" {
		g.outside = net.JoinHostPort(ip, port)
	}
	return nil
}

// outside is an address of this machine that is not loopback.
func outside() string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
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
	g := &orderStage{}
	if err := g.adminEverywhere(st); err != nil {
		return err
	}
	all := map[string][]string{st.admin: orders(disguises)}
	if g.outside != "" {
		all[g.outside] = orders(ofOutside)
	}
	// What is asked for otherwise than by POST does nothing, from this machine too.
	mild := []string{}
	for _, path := range []string{"/drain", "/quit", "/retry-percent"} {
		for _, line := range []string{"GET %s HTTP/1.1\r\nX-HTTP-Method-Override: POST\r\nX-HTTP-Method: POST\r\nX-Method-Override: POST", "GET %s?_method=POST HTTP/1.1", "PUT %s HTTP/1.1\r\nContent-Length: 0", "post %s HTTP/1.1", "HEAD %s HTTP/1.1"} {
			mild = append(mild, fmt.Sprintf(line, path)+"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		}
	}
	mild = append(mild, "POST /retry-percent HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1\r\nConnection: close\r\n\r\n0",
		"POST /retry-percent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1\r\nConnection: close\r\n\r\n0")
	var turn atomic.Int64
	st.strike = func(s *strike) error {
		n := int(turn.Add(1))
		if n%8 == 0 {
			return s.ask(st.admin, mild[n/8%len(mild)], patience, func(*heard) {})
		}
		for addr, requests := range all {
			if err := s.ask(addr, requests[n%len(requests)], patience, g.hear); err != nil {
				return err
			}
		}
		return nil
	}
	st.beside, st.judge = g.probe(st), g.judgeOrders
	return nil
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

func (g *orderStage) hear(h *heard) {
	if h.status/100 != 4 {
		g.add("an order from outside was answered %d", h.status)
	}
	g.refused.Add(1)
}

// probe asks for readiness and metrics, as a kubelet and Prometheus do: on connections of their own, one after the other.
func (g *orderStage) probe(st *stage) func(ctx context.Context, p *proxy) {
	from := []string{st.admin}
	if g.outside != "" {
		from = append(from, g.outside)
	}
	paths := []string{"/readyz", "/metrics", "/livez"}
	return func(ctx context.Context, p *proxy) {
		inRow := 0
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			res, err := admins.Get("http://" + from[n%len(from)] + paths[n%len(paths)])
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
			if err == nil && res.StatusCode != http.StatusOK {
				err = errors.New(res.Status)
			}
			if inRow++; err == nil {
				inRow = 0
			} else if g.failed.Add(1); inRow == mostFailing {
				g.add("%d probes in a row failed, the last %s: %v", inRow, paths[n%len(paths)], err)
			}
			g.probes.Add(1)
			g.slowest.Store(max(g.slowest.Load(), int64(time.Since(began))))
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// mostFailing in a row have a kubelet act, by default.
const mostFailing = 3

// mostProbe is how long a probe may take, on a machine whose cores the flood has as well.
const mostProbe = 5 * time.Second

func (g *orderStage) judgeProbes() string {
	slowest := time.Duration(g.slowest.Load())
	if slowest > mostProbe {
		g.add("a probe took %v", slowest)
	}
	g.atLeast(1, g.probes.Load(), "probes")
	return fmt.Sprintf("%d probes and scrapes, %d of them failed, the slowest after %v", g.probes.Load(), g.failed.Load(), slowest.Round(time.Millisecond))
}

func (g *orderStage) judgeOrders(p *proxy) (string, []string) {
	g.atLeast(20, g.refused.Load(), "refusals")
	if n, err := percent(p.Admin, ""); n != 100 {
		g.add("retry-percent is %d (%v): an order took effect", n, err)
	}
	// The same order from this machine does: the judge above could have seen it.
	if n, err := percent(p.Admin, "0"); n != 0 || err != nil {
		g.add("retry-percent from this machine: %d, %v", n, err)
	}
	from := "from an address that is not loopback, and by loopback in disguise"
	if g.outside == "" {
		from = "by loopback in disguise; this machine has no other address"
	}
	return fmt.Sprintf("%d orders refused (%s), none took effect; %s", g.refused.Load(), from, g.judgeProbes()), g.all()
}

// percent asks for the share of retries, after changing it if to is not "".
func percent(addr, to string) (int, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+addr+"/retry-percent", nil)
	if to != "" {
		req, err = http.NewRequest(http.MethodPost, "http://"+addr+"/retry-percent", strings.NewReader(to))
	}
	if err != nil {
		return -1, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := admins.Do(req)
	if err != nil {
		return -1, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return -1, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1, err
	}
	return n, nil
}

// adminFlood takes up the admin listener's connections in four ways.
func adminFlood(st *stage) error {
	g := &orderStage{}
	if err := g.adminEverywhere(st); err != nil {
		return err
	}
	to := []string{st.admin}
	if g.outside != "" {
		to = append(to, g.outside)
	}
	var turn atomic.Int64
	st.strike = func(s *strike) error {
		n := int(turn.Add(1))
		nc, err := s.dialTo(to[n%len(to)])
		if err != nil {
			return err
		}
		defer nc.Close()
		s.sent.Add(1)
		switch n % 8 {
		case 0: // answers that are not read
			return s.every(time.Second, func() error {
				_, err := io.WriteString(nc, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 50))
				return err
			})
		case 1: // a body that does not come
			return s.hold(nc, "POST /retry-percent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n")
		case 2: // kept alive and idle
			return s.hold(nc, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
		case 3:
			return s.hold(nc, "")
		}
		if _, err := io.WriteString(nc, "GET /livez HTTP/1.1\r\nX-A: "); err != nil {
			return err
		}
		return s.every(50*time.Millisecond, func() error { _, err := io.WriteString(nc, "a"); return err })
	}
	st.beside = g.probe(st)
	st.judge = func(*proxy) (string, []string) { return g.judgeProbes(), g.all() }
	return nil
}

// hold says something and waits until the connection ends.
func (s *strike) hold(nc net.Conn, says string) error {
	if _, err := io.WriteString(nc, says); err != nil {
		return err
	}
	return s.held(nc)
}

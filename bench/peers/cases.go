package main

import (
	"net"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// testCase is one kind of work with its goal.
type testCase struct {
	name    string
	work    string
	unit    string
	goal    string
	measure func(s *stage, r *result) error
	met     func(r *result) bool
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

var cases = []testCase{
	{"get", "small GET, 64 connections", "us CPU", "<= 0.90 of HAProxy and below nginx", cost(rig.Load{URL: "/small", Connections: 64}),
		func(r *result) bool { return r.ratio() <= 0.90 && r.belowNginx() }},
	{"distinct", "small GET, 64 connections, no two heads alike", "us CPU", "below HAProxy's", cost(rig.Load{URL: "/distinct", Connections: 64, Distinct: true}),
		func(r *result) bool { return r.ratio() < 1 }},
	{"latency", "small GET, 1 connection: p50 above going directly", "us", "<= HAProxy's", (*stage).latency,
		func(r *result) bool { return r.ratio() <= 1 }},
	{"post16k", "POST 16 KiB, 64 connections", "us CPU", "<= 0.75 of HAProxy", cost(rig.Load{URL: "/sink", Connections: 64, Method: "POST", BodyBytes: 16 * kib}),
		func(r *result) bool { return r.ratio() <= 0.75 }},
	{"get1m", "GET 1 MiB, 16 connections", "us CPU", "<= 0.80 of HAProxy", cost(rig.Load{URL: "/bytes/1048576", Connections: 16}),
		func(r *result) bool { return r.ratio() <= 0.80 }},
	{"put16m", "PUT 16 MiB, 4 connections", "us CPU", "<= 0.80 of HAProxy", cost(rig.Load{URL: "/sink", Connections: 4, Method: "PUT", BodyBytes: 16 * mib}),
		func(r *result) bool { return r.ratio() <= 0.80 }},
	// So many connections that those which wait leave the proxy as busy as HAProxy, which retries at
	// once: wakeups of an idle processor are expensive.
	{"fail10", "10 % of answers 503, 512 connections", "us CPU", "<= 1.1 of HAProxy; failed at most 3 x 0.1^4", cost(rig.Load{URL: "/fail/10", Connections: 512}),
		func(r *result) bool { return r.ratio() <= 1.1 && r.failedShare() <= 3e-4 }},
	{"rest", "memory at rest, after one request", "MiB PSS", "<= 9 MiB",
		memory(func(s *stage, p *rig.Proxy) (float64, error) { n, err := s.atRest(p); return float64(n) / mib, err }),
		func(r *result) bool { return r.ours() <= 9 }},
	{"idle", "memory per idle keep-alive connection", "KiB PSS", "<= 5 KiB",
		memory(func(s *stage, p *rig.Proxy) (float64, error) {
			return s.perConnection(p, s.idle, func() (net.Conn, error) { return ask(p.Addr) }, func() error { return nil })
		}),
		func(r *result) bool { return r.ours() <= 5 }},
	{"waiting", "memory per request waiting in backoff (budget and outage handling off)", "KiB PSS", "<= 12 KiB",
		memory(func(s *stage, p *rig.Proxy) (float64, error) {
			return s.perConnection(p, s.waiting, func() (net.Conn, error) { return send(p.Addr, "/busy/60") }, func() error { return s.awaitWaiting(p) })
		}, "RETRYPROXY_BUDGET_RATIO=off", "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off", "RETRYPROXY_REQUEST_TIMEOUT=3m"),
		func(r *result) bool { return r.ours() <= 12 }},
	{"start", "start to first proxied request", "ms", "<= 30 ms", (*stage).start,
		func(r *result) bool { return r.ours() <= 30 }},
	{"cores", "small GET, 256 connections, throughput of two cores over one", "x", ">= 1.8", (*stage).scaling,
		func(r *result) bool { return r.ours() >= 1.8 }},
	{instructions, "small GET, 64 connections, under valgrind", "user instructions", "counted", (*stage).instructions,
		func(r *result) bool { return r.ours() > 0 }},
}

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// retryAfterAttacks is an upstream that asks for absurd waits. Its clients wait no longer than the caps, and
// no other client waits at all.
var retryAfterAttacks = []attack{
	{name: "Retry-After abuse", conns: 200, bound: baseMemory + 200*perSlow, why: "200 requests", prepare: retryAfterAbuse},
}

// The caps: the time of a request, and of a shared pause.
const (
	capRequest        = time.Second
	capRateLimitPause = 500 * time.Millisecond
	// capSlack is for 208 clients on two cores.
	capSlack = 2 * time.Second
)

// waits are the headers that the upstream sends.
var waits = []string{
	"Retry-After: 0", "Retry-After: 1", "Retry-After: 86400", "Retry-After: 9223372036", "Retry-After: 9223372037", "Retry-After: 18446744073709551616", "Retry-After: " + strings.Repeat("9", 5000),
	"Retry-After: -1", "Retry-After: +5", "Retry-After: 1e9", "Retry-After: 0x7fffffff", "Retry-After: NaN", "Retry-After: Infinity", "Retry-After: ", "Retry-After: 1, 2, 3",
	"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT", "Retry-After: Mon, 01 Jan 0001 00:00:00 GMT", "Retry-After: Fri, 99 Dec 2099 99:99:99 GMT",
	"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT", "Retry-After: Mon, 01 Jan 2024 00:00:01 GMT\r\nDate: Fri, 31 Dec 9999 23:59:59 GMT",
	strings.TrimSuffix(strings.Repeat("Retry-After: 3600\r\n", 90), "\r\n"), "Retry-After: 0\r\nRetry-After: 999999999",
	"RateLimit: \"default\";r=0;t=99999999999999999999", "RateLimit-Remaining: 0\r\nRateLimit-Reset: 9223372036854775807", "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 253402300799", "X-RateLimit-Remaining: -9\r\nX-RateLimit-Reset: -1",
	"RateLimit-Policy: \"x\";q=0;w=1\r\nRateLimit: \"x\";r=0;t=-5", "X-RateLimit-Reset-After: 1e308\r\nX-RateLimit-Remaining: 0", "Retry-After-Ms: 99999999999", "Grpc-Retry-Pushback-Ms: 9223372036854775807", "X-Envoy-Ratelimited: true",
}

// What is counted.
const (
	keptFor        = "time of a client"
	rejected, busy = "answers 429", "answers 503"
)

// waitRoutes are routes without shared pauses, with one pause for all requests, and with one per header value.
var waitRoutes = map[string]string{"none": "none", "route": "route", "field": "header:X-Key"}

// retryAfterAbuse gives each route an upstream that asks for one wait after another. When the upstream is
// good again, each route must be served again.
func retryAfterAbuse(st *stage) error {
	var well atomic.Bool
	for name, key := range waitRoutes {
		st.route(name, "/"+name+"/*", func(w http.ResponseWriter, _ *http.Request) {
			if well.Load() {
				return
			}
			status := []string{"429 Too Many Requests", "503 Service Unavailable"}[rand.IntN(2)]
			raw(w, "HTTP/1.1 "+status+"\r\n"+waits[rand.IntN(len(waits))]+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}, "RATE_LIMIT_PAUSE_KEY="+key, "RATE_LIMIT_PAUSE_MAX="+capRateLimitPause.String(), "REQUEST_TIMEOUT="+capRequest.String(), "BUDGET_RATIO=off")
	}
	st.needs = needs{rejected: 20, busy: 5}
	route := inTurn(slices.Collect(maps.Keys(waitRoutes)))
	st.strike = func(s *strike) error {
		began, answered := time.Now(), false
		err := s.askRoute(route(), rand.IntN(100), func(h *http.Response) {
			answered = true
			st.Count(fmt.Sprint("answers ", h.StatusCode), 1)
			st.Longest(keptFor, time.Since(began))
		})
		if took := time.Since(began); err == nil && !answered && s.Err() == nil {
			st.Add("no response after %v", took)
		}
		return err
	}
	st.judge = func(p *rig.Proxy) string {
		well.Store(true)
		return st.judgeWaits(p)
	}
	return nil
}

func (s *strike) askRoute(name string, key int, got func(*http.Response)) error {
	return s.ask(s.addr, fmt.Sprintf("GET /%s/x HTTP/1.1\r\nHost: bench.test\r\nX-Key: %d\r\nConnection: close\r\n\r\n", name, key), patience, got)
}

// judgeWaits sends requests until all routes are served again.
func (st *stage) judgeWaits(p *rig.Proxy) string {
	began := time.Now()
	for name := range waitRoutes {
		if err := rig.Await(context.Background(), "served", patience, func() bool { return allServed(p, name) }); err != nil {
			st.Add("%s is not served %v after the upstream is well", name, patience)
		}
	}
	recovered := time.Since(began)
	if most := capRateLimitPause + capRequest + capSlack; recovered > most {
		st.Add("served again after %v, more than %v", recovered, most)
	}
	longest := st.Longest(keptFor, 0)
	if most := capRequest + capSlack; longest > most {
		st.Add("a client was kept for %v, more than %v", longest, most)
	}
	return fmt.Sprintf("longest time of a client %v (REQUEST_TIMEOUT %v); %d answers 429, %d answers 503; all routes served %v after the upstream was well (RATE_LIMIT_PAUSE_MAX %v)",
		longest.Round(time.Millisecond), capRequest, st.Counted(rejected), st.Counted(busy), recovered.Round(time.Millisecond), capRateLimitPause)
}

// allServed reports whether fifty requests in a row, each with another key, are served.
func allServed(p *rig.Proxy, name string) bool {
	s, good := &strike{context.Background(), p.Addr, &tally{}}, 0
	for i := range 50 {
		_ = s.askRoute(name, i, func(h *http.Response) {
			if h.StatusCode == http.StatusOK {
				good++
			}
		})
		if good <= i {
			return false
		}
	}
	return true
}

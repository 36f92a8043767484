package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// retryAfterAttacks are an upstream that asks for waits without end, of which clients
// wait no longer than the caps, and nobody else at all.
var retryAfterAttacks = []attack{
	{name: "Retry-After abuse", conns: 200, bound: atEase + 200*perSlow, why: "200 requests", prepare: retryAfterAbuse},
}

// The caps of the attack: a request's time, and a pause's that is shared.
const (
	capRequest        = time.Second
	capRateLimitPause = 500 * time.Millisecond
	// capSlack is for two cores and 208 clients.
	capSlack = 2 * time.Second
)

// waits are what the upstream asks for.
var waits = []string{
	"Retry-After: 0", "Retry-After: 1", "Retry-After: 86400", "Retry-After: 9223372036", "Retry-After: 9223372037", "Retry-After: 18446744073709551616", "Retry-After: " + strings.Repeat("9", 5000),
	"Retry-After: -1", "Retry-After: +5", "Retry-After: 1e9", "Retry-After: 0x7fffffff", "Retry-After: NaN", "Retry-After: Infinity", "Retry-After: ", "Retry-After: 1, 2, 3",
	"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT", "Retry-After: Mon, 01 Jan 0001 00:00:00 GMT", "Retry-After: Fri, 99 Dec 2099 99:99:99 GMT",
	"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT", "Retry-After: Mon, 01 Jan 2024 00:00:01 GMT\r\nDate: Fri, 31 Dec 9999 23:59:59 GMT",
	strings.TrimSuffix(strings.Repeat("Retry-After: 3600\r\n", 90), "\r\n"), "Retry-After: 0\r\nRetry-After: 999999999",
	"RateLimit: \"default\";r=0;t=99999999999999999999", "RateLimit-Remaining: 0\r\nRateLimit-Reset: 9223372036854775807", "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 253402300799", "X-RateLimit-Remaining: -9\r\nX-RateLimit-Reset: -1",
	"RateLimit-Policy: \"x\";q=0;w=1\r\nRateLimit: \"x\";r=0;t=-5", "X-RateLimit-Reset-After: 1e308\r\nX-RateLimit-Remaining: 0", "Retry-After-Ms: 99999999999", "Grpc-Retry-Pushback-Ms: 9223372036854775807", "X-Envoy-Ratelimited: true",
}

// waitStage is an upstream that asks for waits, until it is well.
type waitStage struct {
	*stage
	well atomic.Bool
}

// kinds are the routes: without shared pauses, with one for all, and with one by a field.
var kinds = []string{"none", "route", "field"}

func retryAfterAbuse(st *stage) error {
	g := &waitStage{stage: st}
	st.strike, st.judge, st.needs = g.call, g.judge, needs{rejected: 20, busy: 5}
	for i, key := range []string{"none", "route", "header:X-Key"} {
		if err := st.route(kinds[i], "/"+kinds[i]+"/*", g.answer, "RATE_LIMIT_PAUSE_KEY="+key, "RATE_LIMIT_PAUSE_MAX="+capRateLimitPause.String(),
			"REQUEST_TIMEOUT="+capRequest.String(), "BUDGET_RATIO=off"); err != nil {
			return err
		}
	}
	return nil
}

// answer asks for one of the waits, sends interim answers without end, or is well.
func (g *waitStage) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case g.well.Load():
		w.WriteHeader(http.StatusOK)
	case rand.IntN(20) == 0:
		g.interim(w, r)
	default:
		status := []string{"429 Too Many Requests", "503 Service Unavailable"}[rand.IntN(2)]
		raw(w, "HTTP/1.1 "+status+"\r\n"+waits[rand.IntN(len(waits))]+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
}

// interim is 1xx and no final response, a few at once or one now and then.
func (g *waitStage) interim(w http.ResponseWriter, r *http.Request) {
	pause := time.Duration(rand.IntN(2)) * 20 * time.Millisecond
	nc, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer nc.Close()
	_ = nc.SetWriteDeadline(time.Now().Add(patience))
	for !g.well.Load() {
		if _, err := nc.Write([]byte("HTTP/1.1 103 Early Hints\r\nRetry-After: 9999999\r\nLink: </a>\r\n\r\n")); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// call is one request of a client, and how long it was kept.
func (g *waitStage) call(s *strike) error {
	began, answered := time.Now(), false
	request := fmt.Sprintf("GET /%s/x HTTP/1.1\r\nHost: bench.test\r\nX-Key: %d\r\nConnection: close\r\n\r\n", kinds[rand.IntN(len(kinds))], rand.IntN(100))
	err := s.ask(s.addr, request, patience, func(h *http.Response) {
		answered = true
		g.Count(fmt.Sprint("answers ", h.StatusCode), 1)
		g.Longest(keptFor, time.Since(began))
	})
	if took := time.Since(began); err == nil && !answered && s.Err() == nil {
		g.Add("no response after %v", took)
	}
	return err
}

const (
	keptFor        = "time of a client"
	rejected, busy = "answers 429", "answers 503"
)

// judge has the upstream well, and asks until everything is served again.
func (g *waitStage) judge(p *rig.Proxy) string {
	g.well.Store(true)
	began := time.Now()
	for _, kind := range kinds {
		for !allServed(p, kind) {
			if time.Since(began) > patience {
				g.Add("%s is not served %v after the upstream is well", kind, patience)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	recovered := time.Since(began)
	if most := capRateLimitPause + capRequest + capSlack; recovered > most {
		g.Add("served again after %v, more than %v", recovered, most)
	}
	longest := g.Longest(keptFor, 0)
	if most := capRequest + capSlack; longest > most {
		g.Add("a client was kept for %v, more than %v", longest, most)
	}
	return fmt.Sprintf("longest time of a client %v (REQUEST_TIMEOUT %v); %d answers 429, %d answers 503; all routes served %v after the upstream was well (RATE_LIMIT_PAUSE_MAX %v)",
		longest.Round(time.Millisecond), capRequest, g.Counted(rejected), g.Counted(busy), recovered.Round(time.Millisecond), capRateLimitPause)
}

// allServed: fifty requests in a row of a route, with as many keys.
func allServed(p *rig.Proxy, kind string) bool {
	s := &strike{context.Background(), p.Addr, &tally{}}
	good := 0
	for i := range 50 {
		_ = s.ask(p.Addr, fmt.Sprintf("GET /%s/x HTTP/1.1\r\nHost: bench.test\r\nX-Key: %d\r\nConnection: close\r\n\r\n", kind, i), patience, func(h *http.Response) {
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

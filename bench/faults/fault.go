//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// fault is one thing that goes wrong. It is made and ended twice.
type fault struct {
	name     string
	how      string // it is made
	settings []string
	tls      bool                           // clients speak TLS
	body     int                            // bytes of the requests that have a body
	prepare  func(st *stage) error          // before the processes start; nil: nothing
	begin    func(st *stage) error          // nil: orders and crowd are all
	end      func(st *stage) error          // as it was
	mode     string                         // conduct of the upstream meanwhile; "": good
	crowd    []manner                       // more clients at once
	until    func(st *stage) bool           // it has lasted long enough; nil: --for
	what     string                         // showed the fault
	felt     func(st *stage) (int64, error) // how often; nil: what the upstream says. Never means that it was no fault
	fail     tolerance
	reason   string // the only one for which requests may fail, as the proxy says it; "": any
	cut      int    // at most so many answers that are visibly cut, as the upstream cut them after their headers
}

// tolerance is which requests may fail.
type tolerance int

const (
	nothing   tolerance = iota
	ambiguous           // those that may not be retried: what was sent may have been done
	anything            // all: there is nothing to serve them with
)

// noBudget has every request retried that may be, however many they are: for faults that each request meets.
var noBudget = []string{"RETRYPROXY_BUDGET_RATIO=off", "RETRYPROXY_BACKOFF_BASE=5ms"}

// cutBodies are the responses of the conduct resetting that are cut after their headers, which are relayed by then.
var cutBodies = func() (n int) {
	for f := range framings {
		_, body, _ := bytes.Cut(f.render("00000000"), []byte("\r\n\r\n"))
		n += len(body)
	}
	return n + 1 // whole and without a length, it ends by a reset
}()

// once is a client that comes, asks and leaves; uploading has a large body, kept for a retry while the upstream is late.
var (
	once      = manner{method: "GET", once: true}
	uploading = manner{method: "PUT", once: true, body: 512 << 10}
)

// faults are all, in the order of the table; each may be played once.
func faults() []fault {
	return []fault{
		{name: "upstream stopped", how: "SIGSTOP, then SIGCONT", what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			begin: stopUpstream, end: wakeUpstream},
		{name: "upstream killed and restarted", how: "SIGKILL, then a new process at the same address", what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			begin: killUpstream, end: (*stage).startUpstream},
		{name: "upstream killed, TLS clients", how: "the same, and clients connect by TLS", tls: true, what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			begin: killUpstream, end: (*stage).startUpstream},
		{name: "upstream killed, HTTP/2", how: "the same, and the upstream speaks HTTP/2 without TLS", what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			prepare: overHTTP2, begin: killUpstream, end: (*stage).startUpstream},
		{name: "upstream stopped, HTTP/2", how: "SIGSTOP, then SIGCONT; the upstream speaks HTTP/2 without TLS", what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			prepare: overHTTP2, begin: stopUpstream, end: wakeUpstream},
		{name: "upstream killed, with a fallback", how: "the same, without retries and circuit breaker, but with a second upstream (RETRYPROXY_FALLBACK)", what: "responses of the fallback", fail: ambiguous,
			settings: []string{"RETRYPROXY_MAX_RETRIES=0", "RETRYPROXY_BREAKER=off"}, prepare: startFallback, begin: killUpstream, end: (*stage).startUpstream,
			felt: says(func(now, before rig.Series) float64 { return fallbacks(now) - fallbacks(before) })},
		{name: "restart with 1000 requests in hand", how: "the upstream answers no more, is killed once it has them or a second brings no more, and restarts 2 s later", what: "requests that it had",
			settings: []string{"RETRYPROXY_ATTEMPT_TIMEOUT=25s"}, mode: silence, crowd: slices.Repeat([]manner{{method: "GET"}, {method: "PUT"}, {method: "POST", key: true}, {method: "POST"}}, 250),
			fail: ambiguous, reason: "not_idempotent", until: (*stage).killWithAll, felt: func(st *stage) (int64, error) { return st.had, nil }, end: inTurn(killUpstream, (*stage).startUpstream)},
		{name: "full accept queue", how: "connections reset, a backlog of 1, no accept", what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			begin: order("deaf"), end: order("hear")},
		{name: "reset at every byte of a response", how: "first attempts cut after 0, 1, 2... bytes, by length, then chunks, then close; retry budget off", what: "answers reset",
			settings: noBudget, fail: ambiguous, cut: cutBodies, mode: resetting,
			until: func(st *stage) bool { n, err := st.up.order("count"); return err != nil || n >= cuts("00000000") }},
		{name: "answers byte by byte", how: fmt.Sprintf("a byte every %v", byteEvery), what: "slow answers", mode: slow},
		{name: "answers before the request", how: "200 after the head of a request, whose 256 KiB are read then", mode: earlyReading, what: "early answers", body: 256 << 10},
		{name: "answers before the request, and leaves", how: "the same, but the body is never read and the connection closed", mode: earlyLeaving, what: "early answers", body: 256 << 10, fail: ambiguous},
		{name: "upstream's clock ten years off", how: "503 to first attempts; Date ten years ahead or behind, Retry-After a date one second later; retry budget off", mode: misdated, what: "wrong dates", settings: noBudget, fail: ambiguous},
		{name: "Content-Length too long", how: "ten bytes more than come; then silence or a close, in turn", mode: tooLong, what: "wrong lengths", cut: math.MaxInt},
		{name: "Content-Length too short", how: "half of what comes, and a whole answer to somebody else behind it", mode: tooShort, what: "wrong lengths"},
		{name: "rate limit", how: "429 to every third first attempt, whatever its method, with Retry-After: 1; requests share the pause; retry budget off", mode: limited, what: "429s",
			settings: append([]string{"RETRYPROXY_RATE_LIMIT_PAUSE_KEY=route"}, noBudget...)},
		{name: "event stream without content", how: "to every third first attempt that may be retried, with RETRYPROXY_FIRST_CONTENT_TIMEOUT of 300 ms; retry budget off", mode: noContent, what: "such streams",
			settings: append([]string{"RETRYPROXY_FIRST_CONTENT_TIMEOUT=300ms"}, noBudget...)},
		dnsGone("DNS gone", "the name server answers nothing", silent),
		dnsGone("DNS failing", "the name server answers SERVFAIL", servfail),
		certificateExpired(),
		{name: "descriptor limit", how: "RLIMIT_NOFILE 128 from the start, 100 more clients at once", mode: late, crowd: slices.Repeat([]manner{once}, 100), what: acceptPauses, felt: pausedAccepting,
			prepare: func(st *stage) error { st.spec.By = []string{"prlimit", "--nofile=128:128"}; return nil }},
		descriptorsLowered(),
		{name: "GOMEMLIMIT", how: "12 MiB; 64 more clients at once, each with PUTs of 512 KiB that are kept for a retry", mode: late, crowd: slices.Repeat([]manner{uploading}, 32),
			settings: []string{"GOMEMLIMIT=" + strconv.Itoa(goLimit)}, what: "KiB beyond it", felt: says(func(now, _ rig.Series) float64 { return max(0, now["go_memstats_sys_bytes"]-goLimit) / (1 << 10) })},
		memoryOfCgroup(), logsFull(), clockStepped(),
		stormy("loss", "5 % of the packets, each way", weather{loss: 0.05}, "packets lost"),
		stormy("delay", "100 ms, each way", weather{delay: 100e6}, "packets delayed"),
		stormy("reordering", fmt.Sprintf("a quarter of the packets %v late, each way", overtakenBy), weather{late: 0.25}, "packets late"),
		stormy("duplication", "a quarter of the packets twice, each way", weather{twice: 0.25}, "packets twice"),
		{name: "network: partition", how: "iptables drops all packets at the upstream's host", what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			prepare: onNetwork, begin: drop, end: pass},
		// The host goes without a sign, and comes back knowing nothing of its connections.
		{name: "network: half-open", how: "iptables drops all packets at the upstream's host, then its process is killed; a new one, then no iptables", what: attemptsFailed, felt: failedAttempts, fail: ambiguous,
			prepare: onNetwork, begin: inTurn(drop, killUpstream), end: inTurn((*stage).startUpstream, pass)},
	}
}

const goLimit = 12 << 20

// inTurn does several things until one goes wrong; nil is nothing to do.
func inTurn(all ...func(*stage) error) func(*stage) error {
	return func(st *stage) error {
		for _, do := range all {
			if do == nil {
				continue
			}
			if err := do(st); err != nil {
				return err
			}
		}
		return nil
	}
}

// startFallback starts a second upstream, which is good to the end.
func startFallback(st *stage) error {
	addr := rig.OwnAddresses(1)[0]
	st.spec.Env = append(st.spec.Env, "RETRYPROXY_FALLBACK=http://"+addr)
	_, err := st.StartRole(roleUpstream, nil, nil, addr, "", "http")
	return err
}

func fallbacks(s rig.Series) float64 { return s.By("outcomes_total", "outcome")["fallback"] }

func overHTTP2(st *stage) error { st.spec.Upstream = "h2c://" + st.upAddr; return nil }

func stopUpstream(st *stage) error { return st.up.Signal(syscall.SIGSTOP) }

func wakeUpstream(st *stage) error { return st.up.Signal(syscall.SIGCONT) }

func killUpstream(st *stage) error { st.up.Kill(); return nil }

// killWithAll kills the upstream once all requests that it will get are there, and reports whether
// it has been down for two seconds. Behind a silent upstream the breaker keeps some requests back.
func (st *stage) killWithAll() bool {
	switch n, err := st.up.order("count"); {
	case err != nil:
		return time.Since(st.lastCame) > 2*time.Second
	case n != st.had:
		st.had, st.lastCame = n, time.Now()
	case n > 0 && time.Since(st.lastCame) > time.Second:
		st.up.Kill()
		st.lastCame = time.Now()
	}
	return false
}

// order sends the upstream an order.
func order(line string) func(*stage) error {
	return func(st *stage) error { _, err := st.up.order(line); return err }
}

// What the proxy says of itself.
const (
	attemptsFailed = "failed attempts and dials"
	acceptPauses   = "pauses of accepting"
)

// says is a figure of the proxy's metrics, now and as the fault began.
func says(of func(now, before rig.Series) float64) func(*stage) (int64, error) {
	return func(st *stage) (int64, error) {
		now, err := st.proxy.Scrape()
		return int64(of(now, st.before)), err
	}
}

var pausedAccepting = says(func(now, before rig.Series) float64 {
	return now.Sum("accept_pauses_total") - before.Sum("accept_pauses_total")
})

var failedAttempts = says(func(now, before rig.Series) float64 { return failures(now) - failures(before) })

func failures(s rig.Series) float64 {
	return s.Sum("upstream_dial_errors_total") + s.Sum("attempts_total") - s.By("attempts_total", "class")["ok"]
}

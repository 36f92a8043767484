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

// fault is something that goes wrong. It begins and ends twice.
type fault struct {
	name     string
	how      string // how it is made
	settings []string
	tls      bool                           // clients use TLS
	body     int                            // bytes of request bodies
	prepare  func(st *stage) error          // before the processes start; may be nil
	begin    func(st *stage) error          // may be nil; see mode and crowd
	end      func(st *stage) error          // may be nil
	mode     string                         // behavior of the upstream during the fault; "" means good
	crowd    []requestKind                  // additional clients during the fault
	until    func(st *stage) bool           // reports whether it has lasted long enough; nil means --for
	what     string                         // what shows that the fault had an effect
	effect   func(st *stage) (int64, error) // how often that was so; nil means the upstream counts it
	fail     tolerance
	instant  bool     // requests end at once, so that perhaps none is in flight at the SIGTERM
	reasons  []string // the only ones of requests that fail, as X-Retryproxy-Reason; nil means any
	cut      int      // the most responses that may be cut, because the upstream cut them after their headers
}

// tolerance says which requests may fail.
type tolerance int

const (
	nothing   tolerance = iota
	ambiguous           // those that may not be retried
	anything            // all
)

// noBudget turns the retry budget off, for faults that concern every request.
var noBudget = []string{"RETRYPROXY_BUDGET_RATIO=off", "RETRYPROXY_BACKOFF_BASE=5ms"}

// cutBodies is how many responses of the behavior resetting are cut after their headers. The proxy has
// forwarded those headers by then.
var cutBodies = func() (n int) {
	for f := range framings {
		_, body, _ := bytes.Cut(f.render("00000000"), []byte("\r\n\r\n"))
		n += len(body)
	}
	return n + 1 // the whole response without a length, which ends with a reset
}()

// once uses a new connection for each request. uploading sends a large body, which is kept for a retry
// while the upstream is late.
var (
	once      = requestKind{method: "GET", once: true}
	uploading = requestKind{method: "PUT", once: true, body: 512 << 10}
)

// faults returns all faults in the order of the table. Each may be played once.
func faults() []fault {
	return []fault{
		{name: "upstream stopped", how: "SIGSTOP, then SIGCONT", what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			begin: stopUpstream, end: wakeUpstream},
		{name: "upstream killed and restarted", how: "SIGKILL, then a new process at the same address", what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			begin: killUpstream, end: (*stage).startUpstream},
		{name: "upstream killed, TLS clients", how: "the same, and clients connect by TLS", tls: true, what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			begin: killUpstream, end: (*stage).startUpstream},
		{name: "upstream killed, HTTP/2", how: "the same, and the upstream speaks HTTP/2 without TLS", what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			prepare: overHTTP2, begin: killUpstream, end: (*stage).startUpstream},
		{name: "upstream stopped, HTTP/2", how: "SIGSTOP, then SIGCONT; the upstream speaks HTTP/2 without TLS", what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			prepare: overHTTP2, begin: stopUpstream, end: wakeUpstream},
		{name: "upstream killed, with a fallback", how: "the same, without retries and circuit breaker, but with a second upstream (RETRYPROXY_FALLBACK)", what: "responses of the fallback", fail: ambiguous,
			settings: []string{"RETRYPROXY_MAX_RETRIES=0", "RETRYPROXY_BREAKER=off"}, prepare: startFallback, begin: killUpstream, end: (*stage).startUpstream,
			effect: says(func(now, before rig.Series) float64 { return fallbacks(now) - fallbacks(before) })},
		{name: "restart with 1000 requests in flight", how: "the upstream no longer responds, is killed once it has them or a second brings no more, and restarts 2 s later", what: "requests that it had",
			settings: []string{"RETRYPROXY_ATTEMPT_TIMEOUT=25s"}, mode: silence, crowd: slices.Repeat([]requestKind{{method: "GET"}, {method: "PUT"}, {method: "POST", key: true}, {method: "POST"}}, 250),
			fail: ambiguous, reasons: []string{"not_idempotent"}, until: (*stage).killWithAll, effect: func(st *stage) (int64, error) { return st.had, nil }, end: inTurn(killUpstream, (*stage).startUpstream)},
		{name: "full accept queue", how: "connections reset, a backlog of 1, no accept", what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			begin: order("deaf"), end: order("hear")},
		{name: "reset at every byte of a response", how: "first attempts cut after 0, 1, 2... bytes, by length, then chunks, then close; retry budget off", what: "responses reset",
			settings: noBudget, fail: ambiguous, cut: cutBodies, mode: resetting,
			until: func(st *stage) bool { n, err := st.up.order("count"); return err != nil || n >= cuts("00000000") }},
		{name: "responses byte by byte", how: fmt.Sprintf("a byte every %v", byteEvery), what: "slow responses", mode: slow},
		{name: "responses before the request", how: "200 after the headers of a request, whose 256 KiB are read then", mode: earlyReading, what: "early responses", body: 256 << 10},
		{name: "responses before the request, then a close", how: "the same, but the body is never read and the connection closed", mode: earlyLeaving, what: "early responses", body: 256 << 10, fail: ambiguous},
		{name: "upstream's clock ten years off", how: "503 to first attempts; Date ten years ahead or behind, Retry-After a date one second later; retry budget off", mode: misdated, what: "wrong dates", settings: noBudget, fail: ambiguous},
		{name: "Content-Length too long", how: "ten bytes more than come; then silence or a close, in turn", mode: tooLong, what: "wrong lengths", cut: math.MaxInt},
		{name: "Content-Length too short", how: "half of what comes, and a whole response for another client behind it", mode: tooShort, what: "wrong lengths"},
		{name: "rate limit", how: "429 to every third first attempt, whatever its method, with Retry-After: 1; requests share the pause; retry budget off", mode: limited, what: "429s",
			settings: append([]string{"RETRYPROXY_RATE_LIMIT_PAUSE_KEY=route"}, noBudget...)},
		{name: "event stream without content", how: "cut off after 100 ms, to every third first attempt that may be retried, with RETRYPROXY_FIRST_CONTENT_TIMEOUT of 10 s; retry budget off", mode: noContent, what: "such streams",
			settings: append([]string{"RETRYPROXY_FIRST_CONTENT_TIMEOUT=10s"}, noBudget...)},
		dnsGone("DNS gone", "the name server does not answer", silent),
		dnsGone("DNS failing", "the name server answers SERVFAIL", servfail),
		certificateExpired(),
		{name: "descriptor limit", how: "RLIMIT_NOFILE 128 from the start, 100 more clients at once", mode: late, crowd: slices.Repeat([]requestKind{once}, 100), what: acceptPauses, effect: pausedAccepting,
			prepare: func(st *stage) error { st.spec.By = []string{"prlimit", "--nofile=128:128"}; return nil }},
		descriptorsLowered(),
		{name: "GOMEMLIMIT", how: "12 MiB; 64 more clients at once, each with PUTs of 512 KiB that are kept for a retry", mode: late, crowd: slices.Repeat([]requestKind{uploading}, 32),
			settings: []string{"GOMEMLIMIT=" + strconv.Itoa(goLimit)}, what: "KiB beyond it", effect: says(func(now, _ rig.Series) float64 { return max(0, now["go_memstats_sys_bytes"]-goLimit) / (1 << 10) })},
		memoryOfCgroup(), logsFull(),
		stormy("loss", "5 % of the packets, each way", weather{loss: 0.05}, "packets lost"),
		stormy("delay", "100 ms, each way", weather{delay: 100e6}, "packets delayed"),
		stormy("reordering", fmt.Sprintf("a quarter of the packets %v late, each way", overtakenBy), weather{late: 0.25}, "packets late"),
		stormy("duplication", "a quarter of the packets twice, each way", weather{twice: 0.25}, "packets twice"),
		{name: "network: partition", how: "iptables drops all packets at the upstream's host", what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			prepare: onNetwork, begin: drop, end: pass},
		// The host vanishes without a sign and returns without its connections.
		{name: "network: half-open", how: "iptables drops all packets at the upstream's host, then its process is killed; a new one, then no iptables", what: attemptsFailed, effect: failedAttempts, fail: ambiguous,
			prepare: onNetwork, begin: inTurn(drop, killUpstream), end: inTurn((*stage).startUpstream, pass)},
	}
}

const goLimit = 12 << 20

// inTurn returns a function that calls all, up to the first error. Entries may be nil.
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

// startFallback starts a second upstream, which has no faults.
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

// killWithAll kills the upstream when no more requests arrive, and reports whether it has been down for
// two seconds. Not all requests reach a silent upstream, because the breaker queues some.
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

// order returns a function that sends the upstream an order.
func order(line string) func(*stage) error {
	return func(st *stage) error { _, err := st.up.order(line); return err }
}

// What metrics of the proxy show.
const (
	attemptsFailed = "failed attempts and dials"
	acceptPauses   = "pauses of accepting"
)

// says computes a figure from the metrics, now and at the beginning of the fault.
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

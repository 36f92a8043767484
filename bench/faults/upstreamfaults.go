//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"syscall"
)

// ambiguous: what was sent may have been done, so that those that may not be
// repeated can fail.
var ambiguous = expects{OthersFail: true}

// noBudget has every request repeated that may be, however many they are: for
// faults that each request meets.
var noBudget = []string{"RETRYPROXY_BUDGET_RATIO=off", "RETRYPROXY_BACKOFF_BASE=5ms"}

// cutBodies are the responses of that conduct that are cut after their head, which is relayed by then.
var cutBodies = func() (n int) {
	for f := range framings {
		_, body, _ := bytes.Cut(f.render("00000000"), []byte("\r\n\r\n"))
		n += len(body)
	}
	return n + 1 // whole and without a length, it ends by a reset
}()

// upstreamFaults are those of the upstream's process.
func upstreamFaults() []fault {
	return []fault{
		{name: "upstream stopped", how: "SIGSTOP, then SIGCONT", felt: failedAttempts, expects: ambiguous,
			begin: signalUpstream(syscall.SIGSTOP), end: signalUpstream(syscall.SIGCONT)},
		{name: "upstream killed and restarted", how: "SIGKILL, then a new process at the same address", felt: failedAttempts, expects: ambiguous,
			begin: killUpstream, end: (*stage).startUpstream},
		{name: "full accept queue", how: "connections reset, a backlog of 1, no accept", felt: failedAttempts, expects: ambiguous,
			begin: orderUpstream("deaf"), end: orderUpstream("hear")},
		{name: "reset at every byte of a response", how: "first attempts cut after 0, 1, 2... bytes, by length, then chunks, then close; retry budget off", felt: metUpstream("answers reset"),
			settings: noBudget, expects: expects{OthersFail: true, Cut: cutBodies}, begin: orderUpstream("mode " + resetting), end: orderUpstream("mode " + wellBehaved),
			until: func(st *stage) bool { n, err := st.up.order("count"); return err != nil || n >= cuts("00000000") }},
		{name: "answers byte by byte", how: fmt.Sprintf("a byte every %v", byteEvery), felt: metUpstream("slow answers"),
			begin: orderUpstream("mode " + slow), end: orderUpstream("mode " + wellBehaved)},
	}
}

// answering is a fault of the upstream's responses.
func answering(name, how, conduct, what string, expects expects) fault {
	return fault{name: name, how: how, felt: metUpstream(what), expects: expects,
		begin: orderUpstream("mode " + conduct), end: orderUpstream("mode " + wellBehaved)}
}

// answerFaults are those of what the upstream says.
func answerFaults() []fault {
	early := answering("answers before the request", "200 after the head of a request, whose 256 KiB are read then", earlyReading, "early answers", expects{})
	leaves := answering("answers before the request, and leaves", "the same, but the body is never read and the connection closed", earlyLeaving, "early answers", expects{OthersFail: true})
	early.body, leaves.body = 256<<10, 256<<10
	dates := answering("upstream's clock ten years off", "503 to first attempts; Date ten years ahead or behind, Retry-After a date one second later; retry budget off", misdated, "wrong dates", ambiguous)
	dates.settings = noBudget
	return []fault{early, leaves, dates,
		answering("Content-Length too long", "ten bytes more than come; then silence or a close, in turn", tooLong, "wrong lengths", expects{Cut: math.MaxInt}),
		answering("Content-Length too short", "half of what comes, and a whole answer to somebody else behind it", tooShort, "wrong lengths", expects{}),
	}
}

func signalUpstream(s syscall.Signal) func(*stage) error {
	return func(st *stage) error { return st.up.Signal(s) }
}

func killUpstream(st *stage) error { st.up.Kill(); return nil }

// orderUpstream gives the upstream some orders.
func orderUpstream(lines ...string) func(*stage) error {
	return func(st *stage) error {
		for _, line := range lines {
			if _, err := st.up.order(line); err != nil {
				return err
			}
		}
		return nil
	}
}

// failedAttempts: attempts and dials that failed, says the proxy.
func failedAttempts(st *stage) (felt, error) {
	now, err := st.proxy.scrape(st.ctx)
	if err != nil {
		return felt{}, err
	}
	n := now.Sum("upstream_dial_errors_total") - st.before.Sum("upstream_dial_errors_total")
	old := st.before.By("attempts_total", "class")
	for class, times := range now.By("attempts_total", "class") {
		if class != "ok" {
			n += times - old[class]
		}
	}
	return felt{int64(n), "failed attempts and dials"}, nil
}

// metUpstream is what the upstream counts.
func metUpstream(what string) func(*stage) (felt, error) {
	return func(st *stage) (felt, error) {
		n, err := st.up.order("count")
		return felt{n, what}, err
	}
}

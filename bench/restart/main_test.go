package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// TestMain lets the test binary be the application, as the command is.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == roleApp {
		main()
		return
	}
	os.Exit(m.Run())
}

// A small run through the data path in this process: nothing is lost but what
// may not run twice.
func TestASmallRestart(t *testing.T) {
	free, err := process.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := play(t.Context(), &options{before: 20, inHand: 300, later: 8, down: 50 * time.Millisecond, patience: 3 * time.Minute}, startProxy(t, free[0]), free[0])
	if err != nil {
		t.Fatal(err)
	}
	if r.answered+r.refused != 308 || r.refused > 75 || r.lost != 0 || r.first <= 0 || r.last < r.first {
		t.Errorf("%v %v", r, r.losses)
	}
}

func startProxy(t *testing.T, app string) string {
	t.Helper()
	target, err := upstream.ParseTarget("http://" + app)
	if err != nil {
		t.Fatal(err)
	}
	on, err := policy.ParseRetryOn("5xx,429,connect-failure,reset,attempt-timeout")
	if err != nil {
		t.Fatal(err)
	}
	backoff, err := backoff.New(backoff.Default, backoff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	long := 3 * time.Minute
	s, err := proxy.New(&proxy.Config{
		Listen: []string{"127.0.0.1:0"},
		Default: proxy.Route{
			Upstream: target, Policy: policy.Policy{RetryOn: on, MaxRetries: 3, Backoff: backoff}, Budget: budget.Config{Ratio: 0.01, MinPerSecond: 0.001, Burst: 1}, QueueTimeout: long, QueueMax: 1000,
			RequestTimeout: long, BodyIdleTimeout: long, RetryBufferBytes: 1 << 10, ResponseBufferBytes: 1 << 10,
		},
		Limits: http1.Limits{HeaderBytes: 4 << 10, Headers: 20}, ReadHeaderTimeout: long, ClientIdleTimeout: long, WriteTimeout: long, RetryBufferTotalBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s.Addrs()[0].String()
}

func TestOnlyWhatMayNotRunTwiceMayFail(t *testing.T) {
	const put, post = 1, 3
	opened := time.Now()
	for _, tc := range []struct {
		name string
		r    request
		want [3]int // answered, refused, lost
	}{
		{"answered", request{kind: post, status: 200, at: opened}, [3]int{1, 0, 0}},
		{"a POST that was in hand", request{kind: post, had: true, status: 502, reason: "not_idempotent"}, [3]int{0, 1, 0}},
		{"a POST that was never sent", request{kind: post, status: 502, reason: "not_idempotent"}, [3]int{0, 0, 1}},
		{"a POST refused for another reason", request{kind: post, had: true, status: 503, reason: "fail_fast"}, [3]int{0, 0, 1}},
		{"a PUT that was in hand", request{kind: put, had: true, status: 502, reason: "not_idempotent"}, [3]int{0, 0, 1}},
		{"no response", request{kind: post, had: true}, [3]int{0, 0, 1}},
	} {
		r := judge([]*request{&tc.r}, opened)
		if got := [3]int{r.answered, r.refused, r.lost}; got != tc.want || len(r.losses) != tc.want[2] {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	r := judge([]*request{{status: 200, at: opened.Add(3 * time.Second)}, {status: 200, at: opened.Add(time.Second)}}, opened)
	if r.first != time.Second || r.last != 3*time.Second {
		t.Errorf("first %v, last %v", r.first, r.last)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"--requests", "0"}, {"--later", "-1"}, {"--down", "-1s"}, {"--runs", "0"}, {"--before", "-1"}, {"--patience", "0s"}, {"more"}, {"--unknown"}} {
		var errs bytes.Buffer
		if code := command.Program(run).Run(t.Context(), "restart", args, &errs, &errs); code != command.Usage {
			t.Errorf("%v: exit code %d, want %d", args, code, command.Usage)
		}
	}
	var errs bytes.Buffer
	if code := command.Program(run).Run(t.Context(), "restart", []string{"--runs", "1", "--proxy", "/nowhere"}, &errs, &errs); code != command.Failed || !strings.Contains(errs.String(), "/nowhere") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

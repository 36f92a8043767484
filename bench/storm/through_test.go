package main

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/ctl/sim"
)

func TestHAProxyConfigurations(t *testing.T) {
	o := &options{storm: sim.Config{Slots: 7, SlotFor: 1500 * time.Millisecond}}
	retry := haproxyConfig("haproxy-retry", o)
	for _, want := range []string{"  retry-on all-retryable-errors\n", "  bind {listen}\n", "  server s1 {upstream}\n"} {
		if !strings.Contains(retry, want) {
			t.Errorf("haproxy-retry lacks %q:\n%s", want, retry)
		}
	}
	if strings.Contains(retry, "timeout queue") || strings.Contains(retry, "abortonclose") {
		t.Errorf("haproxy-retry says too much:\n%s", retry)
	}
	o.abort = true
	tuned := haproxyConfig("haproxy-tuned", o)
	for _, want := range []string{"  timeout queue 1500ms\n", "  option abortonclose\n", "  server s1 {upstream} maxconn 7\n"} {
		if !strings.Contains(tuned, want) {
			t.Errorf("haproxy-tuned lacks %q:\n%s", want, tuned)
		}
	}
}

func TestPauses(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, failed := range []int{0, 1, 1000} {
		if got := o.pause(r, failed); got != 100*time.Millisecond {
			t.Errorf("naive, %d failed before: %v, want 100 ms", failed, got)
		}
	}
	if o, err = parse([]string{"--client-backoff", "backoff"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	for failed, most := range map[int]time.Duration{0: 100 * time.Millisecond, 3: 800 * time.Millisecond, 7: 10 * time.Second, 10_000: 10 * time.Second} {
		var longest time.Duration
		for range 1000 {
			d := o.pause(r, failed)
			if d < 0 || d > most {
				t.Fatalf("backoff, %d failed before: %v is not in [0, %v]", failed, d, most)
			}
			longest = max(longest, d)
		}
		if longest < most*9/10 {
			t.Errorf("backoff, %d failed before: longest %v of 1000, want near %v", failed, longest, most)
		}
	}
}

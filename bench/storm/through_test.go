package main

import (
	"strings"
	"testing"
	"time"
)

func TestHAProxyConfigurations(t *testing.T) {
	o := &options{maxconn: 7, queueFor: 1500 * time.Millisecond}
	retry := haproxyConfig("haproxy-retry", o, "127.0.0.1:1", "127.0.0.1:2")
	for _, want := range []string{"  retry-on all-retryable-errors\n", "  bind 127.0.0.1:1\n", "  server s1 127.0.0.1:2\n"} {
		if !strings.Contains(retry, want) {
			t.Errorf("haproxy-retry lacks %q:\n%s", want, retry)
		}
	}
	if strings.Contains(retry, "timeout queue") || strings.Contains(retry, "abortonclose") {
		t.Errorf("haproxy-retry says too much:\n%s", retry)
	}
	o.abort = true
	tuned := haproxyConfig("haproxy-tuned", o, "127.0.0.1:1", "127.0.0.1:2")
	for _, want := range []string{"  timeout queue 1500ms\n", "  option abortonclose\n", "  server s1 127.0.0.1:2 maxconn 7\n"} {
		if !strings.Contains(tuned, want) {
			t.Errorf("haproxy-tuned lacks %q:\n%s", want, tuned)
		}
	}
}

package main

import (
	"io"
	"testing"
	"time"
)

// TestVirtualTimePlaysTheSameStorm: straight it never ends, and what is told of
// it fits the storm.
func TestVirtualTimePlaysTheSameStorm(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.storm.Clients.N, o.storm.Length = 500, 85*time.Second
	if v := inVirtualTime("direct", o); v.GoodAgain != nil || v.Peak < 5000 {
		t.Errorf("direct: %v; want never, with thousands at the server", &v)
	}
	v := inVirtualTime("retryproxy", o)
	if v.GoodAgain == nil || v.Peak > 150 {
		t.Errorf("through retryproxy: %v; want an end, and at most 150 at the server", &v)
	}
	if v.Peace < 35 || v.Peace > 65 {
		t.Errorf("%.1f good responses a second in peace, want about 50: 500 clients, one in 10 s each", v.Peace)
	}
}

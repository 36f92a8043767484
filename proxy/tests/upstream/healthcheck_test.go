package upstream

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

func TestAnEndpointThatFailsItsHealthChecksGetsNoRequests(t *testing.T) {
	ips := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	port, l := listenAt(t, ips...)
	var sick atomic.Int64
	var served [3]atomic.Int64
	for i := range l {
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path != "/healthz":
				served[i].Add(1)
			case int(sick.Load()) == i+1:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = fmt.Fprint(w, "ok")
		})}
		go func() { _ = s.Serve(l[i]) }()
		t.Cleanup(func() { _ = s.Close() })
	}
	core, logs := observer.New(zapcore.InfoLevel)
	p := proxytest.StartTo(t, "http://name.test:"+port, func(c *proxy.Config) {
		peers.ResolveTo(c, ips...)
		c.Default.HealthCheck = upstream.HealthCheck{Path: "/healthz", Interval: 100 * time.Millisecond}
		c.Default.Balance = proxy.Balance{RoundRobin: true}
		c.Log = zap.New(core)
	})
	serves := func(n int) (at [3]int64) {
		for i := range served {
			served[i].Store(0)
		}
		for range n {
			p.Dial().Send(peers.Get("/")).Want(200, "ok")
		}
		for i := range served {
			at[i] = served[i].Load()
		}
		return at
	}
	peers.Soon(t, "the addresses", func() bool { return len(p.Addresses().Each) == 3 }) // a request before that has no turn
	if at := serves(30); at != [3]int64{10, 10, 10} {
		t.Errorf("in turn: %v", at)
	}
	sick.Store(2)
	peers.Soon(t, "an unhealthy endpoint", func() bool { return p.Addresses().Unhealthy == 1 })
	if at := serves(30); at != [3]int64{15, 0, 15} {
		t.Errorf("one is unhealthy: %v", at)
	}
	sick.Store(0)
	peers.Soon(t, "a healthy endpoint", func() bool { return p.Addresses().Unhealthy == 0 })
	if at := serves(30); at != [3]int64{10, 10, 10} {
		t.Errorf("it passes again: %v", at)
	}
	if n := logs.FilterMessageSnippet("fails its health checks").Len(); n != 1 {
		t.Errorf("%d lines say that an endpoint fails", n)
	}
	if n := logs.FilterMessage("the endpoint passes its health checks again").Len(); n != 1 {
		t.Errorf("%d lines say that it passes", n)
	}
}

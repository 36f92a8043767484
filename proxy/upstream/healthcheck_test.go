package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// checkedNetwork answers health checks, by address. A status of 0 refuses the connection, 1 never answers.
type checkedNetwork struct {
	mu     sync.Mutex
	status map[string]int
	asked  []string // the requests
	events []string // calls of OnHealth
	header string   // of the responses, with its line ends
}

func (n *checkedNetwork) set(addr string, status int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status[addr] = status
}

func (n *checkedNetwork) dial(_ context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	status := n.status[addr]
	n.mu.Unlock()
	if status == 0 {
		return nil, errno("connect", syscall.ECONNREFUSED)
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close() //nolint:errcheck // a test's
		r, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			return
		}
		n.mu.Lock()
		n.asked = append(n.asked, r.Method+" "+r.Host+r.RequestURI+" "+r.UserAgent())
		n.mu.Unlock()
		if status == 1 {
			_, _ = io.Copy(io.Discard, far)
			return
		}
		_, _ = fmt.Fprintf(far, "HTTP/1.1 %d x\r\nContent-Length: 2\r\nConnection: close\r\n%s\r\nok", status, n.header)
	}()
	return near, nil
}

func (n *checkedNetwork) group(t *testing.T, count int) *Group {
	t.Helper()
	n.status = map[string]int{}
	target := Target{Network: "tcp", Host: "app.test", Dial: n.dial}
	for i, addr := range addresses(count) {
		n.status[addr] = 200
		one := target
		one.Address = addr
		if i == 0 {
			target.Address = addr
			continue
		}
		target.MoreTargets = append(target.MoreTargets, one)
	}
	g := NewGroup(target, Options{
		HealthCheck: HealthCheck{Path: "/healthz?full", Interval: 10 * time.Second},
		OnHealth: func(addr string, err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, fmt.Sprint(addr, " ", err))
		},
	})
	synctest.Wait()
	if len(n.asked) > 0 {
		t.Error("endpoints are checked before that was started")
	}
	g.StartHealthChecks()
	g.StartHealthChecks() // which has no effect
	t.Cleanup(g.Close)
	return g
}

// An endpoint that fails three checks gets no requests until two have passed, whatever the failure is.
func TestAnUnhealthyEndpointGetsNoRequests(t *testing.T) {
	for name, status := range map[string]int{"status": 503, "too many": 429, "refused": 0, "silent": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, all := &checkedNetwork{}, addresses(3)
				g := n.group(t, 3)
				time.Sleep(30 * time.Second)
				wantUsable(t, g, "all pass", all...)
				n.set(all[0], status)
				time.Sleep(17 * time.Second) // at most two checks, since 9 s lie between them at least
				wantUsable(t, g, "before the third", all...)
				time.Sleep(25 * time.Second)
				wantUsable(t, g, "after the third", all[1:]...)
				if s := g.Endpoints(); s.Used != 2 || s.Unhealthy != 1 || !s.Each[0].Unhealthy || s.Each[1].Unhealthy {
					t.Errorf("%+v", s)
				}
				if s := g.Stats(); s.Dials != 0 || s.Reuses != 0 || s.DialErrors != [NumDialKinds]uint64{} {
					t.Errorf("checks count as requests: %+v", s)
				}
				n.set(all[0], 404)          // a path that is wrong shows no less that the endpoint is up
				time.Sleep(8 * time.Second) // at most one
				wantUsable(t, g, "before the second that passes", all[1:]...)
				time.Sleep(20 * time.Second)
				wantUsable(t, g, "after the second", all...)
				g.Close()
				n.mu.Lock()
				defer n.mu.Unlock()
				if len(n.events) != 2 || n.events[1] != all[0]+" <nil>" {
					t.Errorf("told: %q", n.events)
				}
				if n.asked[0] != "GET app.test/healthz?full retryproxy-health" {
					t.Errorf("asked %q", n.asked[0])
				}
				asked := len(n.asked)
				n.mu.Unlock()
				time.Sleep(time.Minute)
				n.mu.Lock()
				if len(n.asked) != asked {
					t.Error("it is checked after Close")
				}
			})
		})
	}
}

// When most are unhealthy, what they share fails, and all are used. A single bad check changes nothing.
func TestHealthChecksNeverLeaveOutMostEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, all := &checkedNetwork{}, addresses(3)
		g := n.group(t, 3)
		n.set(all[0], 503)
		time.Sleep(11500 * time.Millisecond) // one or two
		n.set(all[0], 200)
		time.Sleep(time.Minute)
		wantUsable(t, g, "two failures", all...)
		n.set(all[0], 503)
		time.Sleep(time.Minute)
		wantUsable(t, g, "one is unhealthy", all[1:]...)
		n.set(all[1], 503)
		time.Sleep(time.Minute)
		wantUsable(t, g, "two of three are", all...)
		if s := g.Endpoints(); s.Unhealthy != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Checks of endpoints with HTTP/2 leave no connections behind.
func TestHealthChecksKeepNoConnections(t *testing.T) {
	var open, most, asked atomic.Int64
	var target Target
	for i := range 2 {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 {
				asked.Add(1)
			}
		}))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		countOpen(s, &open, &most)
		s.Start()
		t.Cleanup(s.Close)
		one, err := ParseTarget(strings.Replace(s.URL, "http", "h2c", 1))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			target = one
		} else {
			target.MoreTargets = []Target{one}
		}
	}
	g := NewGroup(target, Options{HealthCheck: HealthCheck{Path: "/", Interval: time.Minute}})
	t.Cleanup(g.Close)
	const checks = 50
	for range checks {
		for _, m := range g.endpoints {
			if err := m.check(&g.options.HealthCheck); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := most.Load(); n > checks/2 { // some may be closing
		t.Errorf("%d connections at once for %d checks of two endpoints", n, checks)
	}
	if n := asked.Load(); n != 2*checks {
		t.Errorf("%d requests by HTTP/2, want %d", n, 2*checks)
	}
}

// An endpoint cannot make a check read headers without end.
func TestACheckReadsHeadersOfALimitedSize(t *testing.T) {
	for size, passes := range map[int]bool{checkHeaderBytes / 2: true, checkHeaderBytes + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			n := &checkedNetwork{header: "X-Long: " + strings.Repeat("x", size) + "\r\n"}
			g := n.group(t, 2)
			if err := g.endpoint(t, addresses(1)[0]).check(&g.options.HealthCheck); (err == nil) != passes {
				t.Errorf("a header of %d bytes: %v", size, err)
			}
		})
	}
}

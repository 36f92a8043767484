package retry

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestTheClientsDeadlineEndsTheRequest(t *testing.T) {
	for field, want := range map[string]time.Duration{
		"X-Request-Timeout: 2.5":               2500 * time.Millisecond,
		"X-Request-Timeout: 1500ms":            1500 * time.Millisecond,
		"Grpc-Timeout: 7S":                     7 * time.Second,
		"X-Envoy-Expected-Rq-Timeout-Ms: 4000": 4 * time.Second,
		"X-Request-Timeout: 300":               30 * time.Second, // never longer than the route's own
		"X-Request-Timeout: tomorrow":          30 * time.Second,
	} {
		proxytest.InMemory(t, peers.NeverAnswers, nil, func(t *testing.T, m *proxytest.Memory) {
			began := time.Now()
			m.Client().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 0", field)).Want(504, "*")
			if d := time.Since(began); d != want {
				t.Errorf("%s: answered after %v, want %v", field, d, want)
			}
		})
	}
}

// Every attempt carries the time that is left.
func TestTheTimeLeftIsForwardedAtEveryAttempt(t *testing.T) {
	fields := []string{"X-Request-Timeout: 20", "grpc-timeout: 20S", "x-envoy-expected-rq-timeout-ms: 20000"}
	wait := func(c *proxy.Config) {
		c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: 3 * time.Second})
	}
	handle := peers.Script(peers.Bad503, peers.Bad503, peers.OK200)
	proxytest.InMemory(t, handle, wait, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.RequestText("GET / HTTP/1.1", append([]string{"Host: a"}, fields...)...)).Want(200, "ok")
		for i, want := range []string{"20 20000000u 20000", "17 17000000u 17000", "14 14000000u 14000"} {
			headers := m.Up.Head(i)
			got := peers.FieldOf(headers, "X-Request-Timeout") + " " + peers.FieldOf(headers, "grpc-timeout") + " " + peers.FieldOf(headers, "x-envoy-expected-rq-timeout-ms")
			if got != want {
				t.Errorf("attempt %d was told %q, want %q", i+1, got, want)
			}
			if n := strings.Count(strings.ToLower(headers), "timeout"); n != 3 {
				t.Errorf("attempt %d has %d such fields, want 3: %q", i+1, n, headers)
			}
		}
	})
}

// The forwarded time is never longer than our own wait.
func TestTheForwardedTimeIsNoLongerThanOurOwn(t *testing.T) {
	for name, body := range map[string]string{"without a body": "", "with one": "hello"} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.Script(peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
				m.Client().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", "X-Request-Timeout: 300s", "Content-Length: "+map[bool]string{true: "0", false: "5"}[body == ""])+body).Want(200, "ok")
				if got := peers.FieldOf(m.Up.Head(0), "X-Request-Timeout"); got != "30000ms" {
					t.Errorf("the upstream was told %q, want 30000ms", got)
				}
			})
		})
	}
}

// A wait that ends after the client's deadline is not begun.
func TestNoWaitOutlastsTheClientsDeadline(t *testing.T) {
	limited := "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 4\r\n\r\nwait"
	proxytest.InMemory(t, peers.Script(limited, peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		res := m.Client().Send(peers.RequestText("GET / HTTP/1.1", "Host: a", "X-Request-Timeout: 4")).Want(503, "wait")
		if d := time.Since(began); d != 0 || res.Header.Get("X-Retryproxy-Reason") != "retry_after_too_long" {
			t.Errorf("answered after %v because of %q", d, res.Header.Get("X-Retryproxy-Reason"))
		}
	})
}

// The client's time runs while it uploads, unlike the request timeout.
func TestTheClientsDeadlineRunsDuringItsUpload(t *testing.T) {
	read := func(c *peers.Conn) { peers.DiscardBody(c, c.Head()) }
	proxytest.InMemory(t, read, nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		began := time.Now()
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nX-Request-Timeout: 3\r\nContent-Length: 40\r\n\r\n")
		go func() {
			for range 5 {
				time.Sleep(time.Second)
				_, _ = c.Write([]byte("x"))
			}
		}()
		c.Want(504, "*")
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("answered after %v, want 3 s", d)
		}
		time.Sleep(10 * time.Second) // the upload ends
	})
}

func TestARequestWhoseTimeIsOverIsNotSent(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		res := c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 0", "Grpc-Timeout: 0S")).Want(504, "*")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "deadline" || m.Up.Sends() != 0 {
			t.Errorf("reason %q, %d sends; want deadline and none", got, m.Up.Sends())
		}
		c.Send(peers.Get("/")).Want(200, "ok") // the connection stays
		m.WantOutcome(0, policy.GaveUp(policy.ReasonDeadline))
		m.WantOutcome(1, policy.OutcomeSuccess)
	})
}

// A stream's first headers may come late, and streams cannot be recognised.
func TestAGRPCCallHasOnlyItsOwnDeadline(t *testing.T) {
	grpc := []string{"Host: a", "Content-Length: 0", "Content-Type: application/grpc+proto"}
	for name, tc := range map[string]struct {
		fields []string
		within time.Duration // 0: it is answered, after two minutes
	}{
		"none":                {grpc, 0},
		"longer than ours":    {append(grpc[:3:3], "grpc-timeout: 50S"), 50 * time.Second},
		"gRPC-Web is no gRPC": {[]string{"Host: a", "Content-Length: 0", "Content-Type: application/grpc-web"}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.AnswersAfter(2*time.Minute, peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				status, want := 504, tc.within
				if want == 0 {
					status, want = 200, 2*time.Minute
				}
				m.Client().Send(peers.RequestText("POST / HTTP/1.1", tc.fields...)).Want(status, "*")
				if d := time.Since(began); d != want {
					t.Errorf("answered after %v, want %v", d, want)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

func TestADeadlineThatCannotBeReadIsCounted(t *testing.T) {
	var mu sync.Mutex
	bad := map[string]int{}
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.BadDeadline = func(f forward.DeadlineHeader) { mu.Lock(); defer mu.Unlock(); bad[f.String()]++ }
	})
	c := p.Dial()
	c.Send(peers.RequestText("GET / HTTP/1.1", "Host: a", "X-Request-Timeout: soon", "grpc-timeout: 5", "x-envoy-expected-rq-timeout-ms: 100")).Want(200, "ok")
	c.Send(peers.RequestText("GET / HTTP/1.1", "Host: a", "grpc-timeout: -1S")).Want(200, "ok")
	mu.Lock()
	defer mu.Unlock()
	if bad["x-request-timeout"] != 1 || bad["grpc-timeout"] != 2 || bad["x-envoy-expected-rq-timeout-ms"] != 0 {
		t.Errorf("counted %v", bad)
	}
	if got := peers.FieldOf(u.Head(0), "X-Request-Timeout") + peers.FieldOf(u.Head(1), "grpc-timeout"); got != "soon-1S" {
		t.Errorf("forwarded %q, want them as they came", got)
	}
}

// The vendors' clients of language models send their timeout too. Theirs only informs the
// upstream.
func TestTheTimeoutOfAVendorsClient(t *testing.T) {
	for _, field := range []string{"X-Stainless-Timeout: 2", "x-stainless-read-timeout: 2.0"} {
		proxytest.InMemory(t, peers.NeverAnswers, nil, func(t *testing.T, m *proxytest.Memory) {
			began := time.Now()
			res, _, err := m.Client().Send(peers.RequestText("GET / HTTP/1.1", "Host: a", field)).Response("GET")
			if err != nil || res.StatusCode != 504 || time.Since(began) != 2*time.Second {
				t.Errorf("%s: %v %v after %v", field, res, err, time.Since(began))
			}
			if headers := m.Up.Head(0); !strings.Contains(headers, field+"\r\n") {
				t.Errorf("%s: forwarded as %q", field, headers)
			}
		})
	}
}

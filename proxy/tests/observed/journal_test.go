package observed

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// notebook is a Journal that wants what its function says.
type notebook struct {
	want func(o policy.Outcome) bool

	mu    sync.Mutex // guards all below
	asked int
	ended int64 // what it was asked of last
	kept  []proxy.Ended
}

func (n *notebook) Wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	n.ended = endedUnixNano
	return n.want(o)
}

func (n *notebook) Keep(e *proxy.Ended) {
	copied := *e
	copied.Method, copied.Path, copied.RequestID, copied.Steps = slices.Clone(e.Method), slices.Clone(e.Path), slices.Clone(e.RequestID), slices.Clone(e.Steps)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, copied)
}

func TestJournalGetsTheRequestsThatItWants(t *testing.T) {
	book := &notebook{want: func(o policy.Outcome) bool { return o == policy.OutcomeRecovered }}
	proxytest.InMemory(t, peers.Script(peers.Bad503, "", peers.OK200, peers.OK200), func(c *proxy.Config) {
		c.Journal = book
		c.Default.Policy.Backoff = backoff.Fixed{Base: 5 * time.Second}
	}, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		c.Send("GET /a/b?token=secret HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
		c.Send(peers.Get("/plain")).Want(200, "ok")
		synctest.Wait()
		book.mu.Lock()
		defer book.mu.Unlock()
		if book.asked != 2 || len(book.kept) != 1 {
			t.Fatalf("asked of %d, told of %d", book.asked, len(book.kept))
		}
		if now := time.Now(); book.ended != now.UnixNano() {
			t.Errorf("the last request ended at %v, and at %v by what was asked", now, time.Unix(0, book.ended))
		}
		e := book.kept[0]
		if string(e.Method) != "GET" || string(e.Path) != "/a/b" || e.Code != 200 || e.Outcome != policy.OutcomeRecovered || e.Attempts != 3 || len(e.Steps) != 3 {
			t.Fatalf("%+v", e)
		}
		for i, want := range []proxy.Step{{Status: 503, Class: policy.Unknown}, {Cause: policy.CauseReset, Class: policy.Unknown}, {Status: 200}} {
			got := e.Steps[i]
			if got.Status != want.Status || got.Cause != want.Cause || got.Class != want.Class {
				t.Errorf("attempt %d: %+v", i+1, got)
			}
			if at := 5 * time.Second * time.Duration(i); got.Began < at || got.Began+got.Took > at+time.Second || got.Began > e.Took {
				t.Errorf("attempt %d began at %v and took %v of %v", i+1, got.Began, got.Took, e.Took)
			}
		}
	})
}

// The journal gets the id that the client gets, and nothing of an earlier request of the
// connection.
func TestJournalGetsTheRequestIDAndTheEndpoint(t *testing.T) {
	book := wantsAll()
	proxytest.InMemory(t, peers.Script(peers.OK200, peers.OK200), func(c *proxy.Config) { c.Journal = book }, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		c.Send("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: from-the-client\r\n\r\n").Want(200, "ok")
		c.Send(peers.Get("/")).Want(200, "ok")
		c.Send("GET / HTTP/9.9\r\n\r\n").Want(505, "*")
		synctest.Wait()
		book.mu.Lock()
		defer book.mu.Unlock()
		if len(book.kept) != 3 {
			t.Fatalf("%+v", book.kept)
		}
		if first, second, refused := book.kept[0].RequestID, book.kept[1].RequestID, book.kept[2].RequestID; string(first) != "from-the-client" || len(second) != 32 || len(refused) != 32 || string(refused) == string(second) {
			t.Errorf("%q, %q, %q", first, second, refused)
		}
		if s := book.kept[0].Steps; len(s) != 1 || s[0].Addr == "" {
			t.Errorf("no endpoint: %+v", s)
		}
	})
}

// What waits before it is sent is not yet an attempt.
func TestWaitBeforeTheFirstAttemptIsNotPartOfIt(t *testing.T) {
	book := wantsAll()
	server := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 2")}}
	proxytest.InMemory(t, server.Handle, func(c *proxy.Config) {
		peers.SharedPause("route")(c)
		c.Journal = book
		c.Default.Policy.MaxRetries = 0
	}, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(429, "*")
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		synctest.Wait()
		book.mu.Lock()
		defer book.mu.Unlock()
		if len(book.kept) != 2 || len(book.kept[1].Steps) != 1 {
			t.Fatalf("%+v", book.kept)
		}
		if s := book.kept[1].Steps[0]; s.Began < 2*time.Second || s.Took > time.Second {
			t.Errorf("the attempt began after %v and took %v", s.Began, s.Took)
		}
	})
}

// wantsAll is a notebook that wants every request.
func wantsAll() *notebook {
	return &notebook{want: func(policy.Outcome) bool { return true }}
}

// steps are those of the only request kept, in the order of their begin.
func (n *notebook) steps(t *testing.T, want int) []proxy.Step {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.kept) != 1 || len(n.kept[0].Steps) != want {
		t.Fatalf("%+v", n.kept)
	}
	steps := n.kept[0].Steps
	slices.SortFunc(steps, func(a, b proxy.Step) int { return int(a.Began - b.Began) })
	return steps
}

func TestJournalPlacesAHedge(t *testing.T) {
	const ms = time.Millisecond
	book := wantsAll()
	proxytest.InMemory(t, peers.ByConn(peers.RespondsAfter(50*ms, peers.OK200), peers.NeverResponds), func(c *proxy.Config) {
		peers.Hedged(t)(c)
		c.Journal = book
	}, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		got := book.steps(t, 2)
		if got[0].Began != 0 || got[0].Took != 50*ms || got[1].Began != 20*ms || got[1].Took != 30*ms || got[1].Class != policy.Overtaken {
			t.Errorf("%+v", got)
		}
	})
}

func TestJournalPlacesAFallback(t *testing.T) {
	const ms = time.Millisecond
	book := wantsAll()
	proxytest.InMemoryWithFallback(t, peers.RespondsAfter(10*ms, peers.Bad503), peers.RespondsAfter(30*ms, peers.OK200), func(c *proxy.Config) { c.Journal = book }, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		got := book.steps(t, 2)
		if got[0].Began != 0 || got[0].Took != 10*ms || got[1].Began != 10*ms || got[1].Took != 30*ms {
			t.Errorf("%+v", got)
		}
	})
}

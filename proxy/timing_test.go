package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// memory runs a proxy between in-memory connections in fake time. Each dialled
// connection is handled by handle.
type memory struct {
	*testProxy
	up *fakeUpstream
	t  *testing.T
}

// inMemory calls test in a bubble of fake time.
func inMemory(t *testing.T, handle func(c *upConn), change func(c *Config), test func(t *testing.T, m *memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := inMemoryUpstream()
		seen := &recorder{}
		c := testConfig(t, "http://upstream.test:80", seen)
		c.Default.Upstream.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			u.serve(t, dialled{Conn: theirs, address: address}, handle)
			return ours, nil
		}
		c.Default.Upstream.Resolve = resolveTest
		if change != nil {
			change(c)
		}
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{testProxy: &testProxy{Server: s, front: &front{seen: seen, t: t}, config: c}, up: u, t: t}
		m.stop = func() { // without listeners, Serve just ends whatever there is
			over, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.Serve(over)
			synctest.Wait()
		}
		test(t, m)
		m.stop()
		time.Sleep(time.Second) // until every request has noticed; one that has not would dial again when its connection is closed
		u.closeConns()
		synctest.Wait()
		if n := s.Stats().RetryBufferUsed; n != 0 {
			t.Errorf("%d bytes of retry buffer were not given back", n)
		}
	})
}

// dialled is an upstream's end of a connection: LocalAddr is what was dialled.
type dialled struct {
	net.Conn
	address string
}

func (d dialled) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(d.address))
}

// client opens a client's connection.
func (m *memory) client() *client {
	theirs, ours := net.Pipe()
	go m.ServeConn(ours, "")
	m.t.Cleanup(func() { theirs.Close() })
	return &client{Conn: theirs, r: bufio.NewReader(theirs), t: m.t}
}

func resolveTest(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
}

// slow waits before it answers.
func slow(d time.Duration, response string) func(c *upConn) {
	return func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			discardBody(c, headers)
			time.Sleep(d)
			c.say("%s", response)
		}
	}
}

func TestRetryAfterIsNeverEarly(t *testing.T) {
	limited := "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
	inMemory(t, script(limited, ok200), nil, func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(get("/")).want(200, "ok")
		if d := time.Since(began); d < 7*time.Second || d > 7*time.Second+time.Millisecond {
			t.Errorf("answered after %v, want 7 s plus the jitter of at most 1 ms", d)
		}
	})
}

func TestRetryAfterBeyondTheDeadlineIsGivenToTheClientAtOnce(t *testing.T) {
	limited := "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 31\r\nContent-Length: 4\r\n\r\nwait"
	inMemory(t, script(limited, ok200), nil, func(t *testing.T, m *memory) {
		began := time.Now()
		res := m.client().send(get("/")).want(503, "wait")
		if d := time.Since(began); d != 0 {
			t.Errorf("answered after %v, want at once", d)
		}
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "retry_after_too_long" {
			t.Errorf("reason %q", got)
		}
		if got := res.Header.Get("Retry-After"); got != "31" {
			t.Errorf("Retry-After %q was not passed on", got)
		}
	})
}

func TestAttemptTimeoutRetriesWhileARetryIsPossible(t *testing.T) {
	responses := make(chan time.Duration, 2)
	responses <- time.Hour
	responses <- 0
	handle := func(c *upConn) {
		c.head()
		time.Sleep(<-responses)
		c.say(ok200)
	}
	inMemory(t, handle, nil, func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(get("/")).want(200, "ok")
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("answered after %v, want after one attempt timeout of 10 s", d)
		}
		if m.up.sends() != 2 {
			t.Errorf("%d sends, want 2", m.up.sends())
		}
		time.Sleep(time.Hour) // the first handler's own sleep ends
	})
}

func TestANonRetriableAttemptHasAllTheTimeLeft(t *testing.T) {
	inMemory(t, slow(25*time.Second, ok200), nil, func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(post("x")).want(200, "ok")
		if d := time.Since(began); d != 25*time.Second {
			t.Errorf("answered after %v, want 25 s", d)
		}
		if m.up.sends() != 1 {
			t.Errorf("%d sends, want 1", m.up.sends())
		}
	})
}

func TestTheLastAttemptHasAllTheTimeLeft(t *testing.T) {
	inMemory(t, slow(18*time.Second, ok200), func(c *Config) { c.Default.Policy.MaxRetries = 1 }, func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(get("/")).want(200, "ok")
		if d := time.Since(began).Truncate(time.Second); d != 28*time.Second {
			t.Errorf("answered after %v, want 10 s + 18 s", d)
		}
		time.Sleep(time.Minute)
	})
}

func TestRequestTimeoutEndsWith504(t *testing.T) {
	inMemory(t, slow(time.Hour, ok200), nil, func(t *testing.T, m *memory) {
		began := time.Now()
		res := m.client().send(get("/")).want(504, "*")
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("answered after %v, want 30 s", d)
		}
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "deadline" && got != "retries_exhausted" {
			t.Errorf("reason %q", got)
		}
		time.Sleep(time.Hour)
	})
}

func TestTheDeadlineRunsFromTheRequestBeingFullySent(t *testing.T) {
	read := func(c *upConn) {
		headers := c.head()
		discardBody(c, headers)
		time.Sleep(29 * time.Second)
		c.say(ok200)
	}
	inMemory(t, read, nil, func(t *testing.T, m *memory) {
		c := m.client()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n")
		for range 40 {
			time.Sleep(time.Second) // longer altogether than the request timeout
			c.send("x")
		}
		c.want(200, "ok")
	})
}

func TestTheClientLeavingEndsTheWaitAtOnce(t *testing.T) {
	limited := "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n"
	inMemory(t, script(limited), nil, func(t *testing.T, m *memory) {
		c := m.client().send(get("/"))
		time.Sleep(5 * time.Second)
		c.Close()
		synctest.Wait()
		if n := len(m.seen.outcomes); n != 1 || m.seen.outcomes[0] != policy.OutcomeClientGone {
			t.Fatalf("outcomes %v, want client_gone at once", m.seen.outcomes)
		}
		if m.up.sends() != 1 {
			t.Errorf("%d sends, want 1", m.up.sends())
		}
	})
}

func TestDrainCutsTheWaitShort(t *testing.T) {
	limited := "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nContent-Length: 4\r\n\r\nbusy"
	inMemory(t, script(limited), nil, func(t *testing.T, m *memory) {
		c := m.client().send(get("/"))
		time.Sleep(5 * time.Second)
		began := time.Now()
		drained := make(chan error)
		go func() { drained <- m.Drain(context.Background()) }()
		res := c.want(503, "busy")
		if d := time.Since(began); d != 0 {
			t.Errorf("answered %v after the drain began, want at once", d)
		}
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "draining" {
			t.Errorf("reason %q", got)
		}
		if !res.Close {
			t.Error("the response does not say Connection: close")
		}
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
	})
}

func TestDrainEndsAWaitBehindAFullBuffer(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	inMemory(t, nil, func(c *Config) {
		c.Default.Upstream.Dial = refused
		c.Default.Policy.Backoff = fixedWait(t, 50*time.Millisecond)
	}, func(t *testing.T, m *memory) {
		c := m.client()
		go io.WriteString(c, post(strings.Repeat("x", 100_000))) // more than is read before there is somewhere to send it
		time.Sleep(20 * time.Millisecond)
		go m.Drain(context.Background())
		res, _, err := c.response("POST")
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "draining" {
			t.Errorf("reason %q", got)
		}
		if n := m.seen.retried(); n != 0 {
			t.Errorf("%d retries after the drain began", n)
		}
		c.Close()
		time.Sleep(time.Minute)
	})
}

func TestDrainServesIdleConnectionsUntilAllIsQuiet(t *testing.T) {
	inMemory(t, script(ok200), nil, func(t *testing.T, m *memory) {
		busy, idle := m.client(), m.client()
		busy.send(get("/1")).want(200, "ok")
		idle.send(get("/1")).want(200, "ok")
		began := time.Now()
		drained := make(chan error)
		go func() { drained <- m.Drain(context.Background()) }()
		time.Sleep(900 * time.Millisecond)
		if res := busy.send(get("/2")).want(200, "ok"); !res.Close {
			t.Error("the response does not say Connection: close")
		}
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
		if d := time.Since(began); d < 1900*time.Millisecond || d > 2100*time.Millisecond {
			t.Errorf("drained after %v, want a second after the last request", d)
		}
		if s, err := idle.rest(); s != "" || err != nil {
			t.Errorf("the idle connection ended with %q, %v", s, err)
		}
	})
}

func TestDrainTimeoutCutsOffWhatIsLeft(t *testing.T) {
	inMemory(t, slow(20*time.Second, ok200), nil, func(t *testing.T, m *memory) {
		c := m.client().send(get("/"))
		time.Sleep(time.Second)
		began := time.Now()
		if err := m.Drain(context.Background()); err != ErrDrainTimeout {
			t.Errorf("drain: %v, want %v", err, ErrDrainTimeout)
		}
		if n := m.CutOff(); n != 1 {
			t.Errorf("%d requests cut off, want 1", n)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("drained after %v, want the drain timeout of 5 s", d)
		}
		if s, _ := c.rest(); s != "" {
			t.Errorf("the client got %q", s)
		}
		time.Sleep(time.Minute)
	})
}

// No retry begins before a fixed backoff has passed: not after 429, and not if the upstream asks for a
// shorter wait.
func TestAFixedBackoffIsTheLeastWait(t *testing.T) {
	const least = 300 * time.Millisecond
	for _, status := range []int{503, 429} {
		for _, asked := range []string{"X-Nothing: 1", "Retry-After: 0", "Retry-After: 0.01", "Retry-After: Fri, 01 Jan 1999 00:00:00 GMT"} {
			up := &timed{first: []string{rawResponse(status, asked), rawResponse(status, asked)}}
			inMemory(t, up.handle, func(c *Config) {
				c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: least})
			}, func(t *testing.T, m *memory) {
				m.client().send(get("/")).want(200, "ok")
			})
			if len(up.at) != 3 {
				t.Fatalf("%d, %s: %d attempts, want 3", status, asked, len(up.at))
			}
			for i := 1; i < len(up.at); i++ {
				if d := up.at[i].Sub(up.at[i-1]); d < least || d > 2*least {
					t.Errorf("%d, %s: retry %d came after %v, want %v to %v", status, asked, i, d, least, 2*least)
				}
			}
		}
	}
}

func TestBudgetIsCheckedBeforeTheWait(t *testing.T) {
	inMemory(t, script(bad503), func(c *Config) {
		c.Default.NoBudget = false
		c.Default.Budget = budget.Config{Ratio: 0.2, MinPerSecond: 1, Burst: 1}
		b, err := backoff.New("fixed", backoff.Options{Base: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		c.Default.Policy.Backoff = b
	}, func(t *testing.T, m *memory) {
		res := m.client().send(get("/")).want(503, "busy")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "budget_exhausted" {
			t.Errorf("reason %q", got)
		}
		if m.up.sends() != 2 {
			t.Errorf("%d sends, want 2: the budget's burst is 1", m.up.sends())
		}
		time.Sleep(3 * time.Second) // it refills by 1 a second
		before := m.up.sends()
		m.client().send(get("/")).want(503, "busy")
		if n := m.up.sends() - before; n != 2 {
			t.Errorf("%d sends after the budget refilled, want 2", n)
		}
	})
}

func TestSlowUploadIsEndedByItsRate(t *testing.T) {
	inMemory(t, func(c *upConn) { discardBody(c, c.head()) }, func(c *Config) { c.MinBodyRate = 100 }, func(t *testing.T, m *memory) {
		c := m.client().send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
		began := time.Now()
		go func() {
			for range 30 {
				time.Sleep(time.Second)
				if _, err := c.Write([]byte(strings.Repeat("x", 10))); err != nil {
					return
				}
			}
		}()
		c.want(408, "*")
		if d := time.Since(began); d < 10*time.Second || d > 13*time.Second {
			t.Errorf("ended after %v, want after the grace of 10 s and 10 to 12 bytes/s of the rate", d)
		}
		time.Sleep(time.Minute)
	})
}

func TestAClientThatNeverSendsAnythingDoesNotStay(t *testing.T) {
	inMemory(t, script(ok200), func(c *Config) { c.ClientIdleTimeout = 620 * time.Second }, func(t *testing.T, m *memory) {
		silent, used := m.client(), m.client()
		used.send(get("/")).want(200, "ok")
		time.Sleep(61 * time.Second)
		if s, err := silent.rest(); s != "" || err != nil {
			t.Errorf("the silent connection ended with %q, %v", s, err)
		}
		used.send(get("/")).want(200, "ok")
	})
}

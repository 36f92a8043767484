package retry

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestRetryAfterIsNeverEarly(t *testing.T) {
	limited := "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
	proxytest.InMemory(t, peers.Script(limited, peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if d := time.Since(began); d < 7*time.Second || d > 7*time.Second+time.Millisecond {
			t.Errorf("answered after %v, want 7 s plus the jitter of at most 1 ms", d)
		}
	})
}

func TestRetryAfterBeyondTheDeadlineIsGivenToTheClientAtOnce(t *testing.T) {
	limited := "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 31\r\nContent-Length: 4\r\n\r\nwait"
	proxytest.InMemory(t, peers.Script(limited, peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		res := m.Client().Send(peers.Get("/")).Want(503, "wait")
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
	handle := func(c *peers.Conn) {
		c.Head()
		time.Sleep(<-responses)
		c.Say(peers.OK200)
	}
	proxytest.InMemory(t, handle, nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("answered after %v, want after one attempt timeout of 10 s", d)
		}
		if m.Up.Sends() != 2 {
			t.Errorf("%d sends, want 2", m.Up.Sends())
		}
		time.Sleep(time.Hour) // the first handler's own sleep ends
	})
}

func TestANonRetriableAttemptHasAllTheTimeLeft(t *testing.T) {
	proxytest.InMemory(t, peers.AnswersAfter(25*time.Second, peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Post("x")).Want(200, "ok")
		if d := time.Since(began); d != 25*time.Second {
			t.Errorf("answered after %v, want 25 s", d)
		}
		if m.Up.Sends() != 1 {
			t.Errorf("%d sends, want 1", m.Up.Sends())
		}
	})
}

func TestTheLastAttemptHasAllTheTimeLeft(t *testing.T) {
	proxytest.InMemory(t, peers.AnswersAfter(18*time.Second, peers.OK200), func(c *proxy.Config) { c.Default.Policy.MaxRetries = 1 }, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if d := time.Since(began).Truncate(time.Second); d != 28*time.Second {
			t.Errorf("answered after %v, want 10 s + 18 s", d)
		}
		time.Sleep(time.Minute)
	})
}

func TestRequestTimeoutEndsWith504(t *testing.T) {
	proxytest.InMemory(t, peers.AnswersAfter(time.Hour, peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		res := m.Client().Send(peers.Get("/")).Want(504, "*")
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
	read := func(c *peers.Conn) {
		headers := c.Head()
		peers.DiscardBody(c, headers)
		time.Sleep(29 * time.Second)
		c.Say(peers.OK200)
	}
	proxytest.InMemory(t, read, nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n")
		for range 40 {
			time.Sleep(time.Second) // longer altogether than the request timeout
			c.Send("x")
		}
		c.Want(200, "ok")
	})
}

func TestTheClientLeavingEndsTheWaitAtOnce(t *testing.T) {
	limited := "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n"
	proxytest.InMemory(t, peers.Script(limited), nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(5 * time.Second)
		c.Close()
		synctest.Wait()
		if n := len(m.Seen.Outcomes); n != 1 || m.Seen.Outcomes[0] != policy.OutcomeClientGone {
			t.Fatalf("outcomes %v, want client_gone at once", m.Seen.Outcomes)
		}
		if m.Up.Sends() != 1 {
			t.Errorf("%d sends, want 1", m.Up.Sends())
		}
	})
}

func TestDrainCutsTheWaitShort(t *testing.T) {
	limited := "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nContent-Length: 4\r\n\r\nbusy"
	proxytest.InMemory(t, peers.Script(limited), nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(5 * time.Second)
		began := time.Now()
		drained := make(chan error)
		go func() { drained <- m.Drain(context.Background()) }()
		res := c.Want(503, "busy")
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
	proxytest.InMemory(t, nil, func(c *proxy.Config) {
		c.Default.Upstream.Dial = refused
		c.Default.Policy.Backoff = peers.FixedWait(t, 50*time.Millisecond)
	}, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		go io.WriteString(c, peers.Post(strings.Repeat("x", 100_000))) // more than is read before there is somewhere to send it
		time.Sleep(20 * time.Millisecond)
		go m.Drain(context.Background())
		res, _, err := c.Response("POST")
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "draining" {
			t.Errorf("reason %q", got)
		}
		if n := m.Seen.Retried(); n != 0 {
			t.Errorf("%d retries after the drain began", n)
		}
		c.Close()
		time.Sleep(time.Minute)
	})
}

func TestDrainServesIdleConnectionsUntilAllIsQuiet(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		busy, idle := m.Client(), m.Client()
		busy.Send(peers.Get("/1")).Want(200, "ok")
		idle.Send(peers.Get("/1")).Want(200, "ok")
		began := time.Now()
		drained := make(chan error)
		go func() { drained <- m.Drain(context.Background()) }()
		time.Sleep(900 * time.Millisecond)
		if res := busy.Send(peers.Get("/2")).Want(200, "ok"); !res.Close {
			t.Error("the response does not say Connection: close")
		}
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
		if d := time.Since(began); d < 1900*time.Millisecond || d > 2100*time.Millisecond {
			t.Errorf("drained after %v, want a second after the last request", d)
		}
		if s, err := idle.Rest(); s != "" || err != nil {
			t.Errorf("the idle connection ended with %q, %v", s, err)
		}
	})
}

func TestDrainTimeoutCutsOffWhatIsLeft(t *testing.T) {
	proxytest.InMemory(t, peers.AnswersAfter(20*time.Second, peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(time.Second)
		began := time.Now()
		if err := m.Drain(context.Background()); err != proxy.ErrDrainTimeout {
			t.Errorf("drain: %v, want %v", err, proxy.ErrDrainTimeout)
		}
		if n := m.CutOff(); n != 1 {
			t.Errorf("%d requests cut off, want 1", n)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("drained after %v, want the drain timeout of 5 s", d)
		}
		if s, _ := c.Rest(); s != "" {
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
			up := &peers.Timed{First: []string{peers.RawResponse(status, asked), peers.RawResponse(status, asked)}}
			proxytest.InMemory(t, up.Handle, func(c *proxy.Config) {
				c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: least})
			}, func(t *testing.T, m *proxytest.Memory) {
				m.Client().Send(peers.Get("/")).Want(200, "ok")
			})
			if len(up.At) != 3 {
				t.Fatalf("%d, %s: %d attempts, want 3", status, asked, len(up.At))
			}
			for i := 1; i < len(up.At); i++ {
				if d := up.At[i].Sub(up.At[i-1]); d < least || d > 2*least {
					t.Errorf("%d, %s: retry %d came after %v, want %v to %v", status, asked, i, d, least, 2*least)
				}
			}
		}
	}
}

func TestBudgetIsCheckedBeforeTheWait(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.Bad503), func(c *proxy.Config) {
		c.Default.NoBudget = false
		c.Default.Budget = budget.Config{Ratio: 0.2, MinPerSecond: 1, Burst: 1}
		b, err := backoff.New("fixed", backoff.Options{Base: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		c.Default.Policy.Backoff = b
	}, func(t *testing.T, m *proxytest.Memory) {
		res := m.Client().Send(peers.Get("/")).Want(503, "busy")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "budget_exhausted" {
			t.Errorf("reason %q", got)
		}
		if m.Up.Sends() != 2 {
			t.Errorf("%d sends, want 2: the budget's burst is 1", m.Up.Sends())
		}
		time.Sleep(3 * time.Second) // it refills by 1 a second
		before := m.Up.Sends()
		m.Client().Send(peers.Get("/")).Want(503, "busy")
		if n := m.Up.Sends() - before; n != 2 {
			t.Errorf("%d sends after the budget refilled, want 2", n)
		}
	})
}

func TestSlowUploadIsEndedByItsRate(t *testing.T) {
	proxytest.InMemory(t, func(c *peers.Conn) { peers.DiscardBody(c, c.Head()) }, func(c *proxy.Config) { c.MinBodyRate = 100 }, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
		began := time.Now()
		go func() {
			for range 30 {
				time.Sleep(time.Second)
				if _, err := c.Write([]byte(strings.Repeat("x", 10))); err != nil {
					return
				}
			}
		}()
		c.Want(408, "*")
		if d := time.Since(began); d < 10*time.Second || d > 13*time.Second {
			t.Errorf("ended after %v, want after the grace of 10 s and 10 to 12 bytes/s of the rate", d)
		}
		time.Sleep(time.Minute)
	})
}

func TestAClientThatNeverSendsAnythingDoesNotStay(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) { c.ClientIdleTimeout = 620 * time.Second }, func(t *testing.T, m *proxytest.Memory) {
		silent, used := m.Client(), m.Client()
		used.Send(peers.Get("/")).Want(200, "ok")
		time.Sleep(61 * time.Second)
		if s, err := silent.Rest(); s != "" || err != nil {
			t.Errorf("the silent connection ended with %q, %v", s, err)
		}
		used.Send(peers.Get("/")).Want(200, "ok")
	})
}

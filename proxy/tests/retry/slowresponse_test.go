package retry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// slowResponse begins now and ends after a minute, if it has a rest.
type slowResponse struct{ begin, rest string }

// slowScript answers request after request with the given responses in order; the last one is
// repeated. A response without a begin resets.
func slowScript(responses ...slowResponse) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		for c.Head() != "" {
			r := responses[min(c.Up.Sends(), len(responses))-1]
			if r.begin == "" {
				c.Reset()
				return
			}
			c.Say("%s", r.begin)
			if r.rest == "" {
				continue
			}
			time.Sleep(time.Minute)
			c.Say("%s", r.rest)
			if strings.Contains(r.begin, "Connection: close") {
				return
			}
		}
	}
}

// slowBodies is a 503 for each framing, whose body "abcdef" comes slowly.
var slowBodies = map[string]slowResponse{
	"length":      {"HTTP/1.1 503 No\r\nX-A: 1\r\nContent-Length: 6\r\n\r\nabc", "def"},
	"chunked":     {"HTTP/1.1 503 No\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n3", "\r\ndef\r\n0\r\nX-Sum: 7\r\n\r\n"},
	"close":       {"HTTP/1.1 503 No\r\nX-A: 1\r\nConnection: close\r\n\r\nabc", "def"},
	"no body yet": {"HTTP/1.1 503 No\r\nX-A: 1\r\nContent-Length: 6\r\n\r\n", "abcdef"},
	"JSON":        {"HTTP/1.1 503 No\r\nX-A: 1\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\nabc", "def"},
}

func patient(c *proxy.Config) {
	c.Default.BodyIdleTimeout, c.Default.RequestTimeout = 2*time.Minute, 5*time.Minute
}

func TestARetryDoesNotWaitForTheRestOfAFailedResponse(t *testing.T) {
	for name, slow := range slowBodies {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, slowScript(slow, slow, slowResponse{begin: peers.OK200}), patient, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				c := m.Client().Send(peers.Get("/"))
				c.Want(200, "ok")
				if d := time.Since(began); d > time.Second || m.Up.Sends() != 3 || m.Seen.Outcome(t, 0) != policy.OutcomeRecovered {
					t.Errorf("answered after %v and %d sends, outcome %v", d, m.Up.Sends(), m.Seen.Outcome(t, 0))
				}
				c.Send(peers.Get("/")).Want(200, "ok")
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestTheRestOfTheLastResponseIsRelayedIfNoRetryGetsOne(t *testing.T) {
	for name, slow := range slowBodies {
		for last := 1; last <= 4; last++ {
			t.Run(fmt.Sprint(name, ", attempt ", last), func(t *testing.T) {
				var responses []slowResponse
				for range last {
					responses = append(responses, slow)
				}
				responses = append(responses, slowResponse{})
				proxytest.InMemory(t, slowScript(responses...), patient, func(t *testing.T, m *proxytest.Memory) {
					began := time.Now()
					c := m.Client().Send(peers.Get("/"))
					res := c.Want(503, "abcdef")
					if d := time.Since(began); d < time.Minute || d > 2*time.Minute {
						t.Errorf("relayed after %v", d)
					}
					if name == "chunked" && res.Trailer.Get("X-Sum") != "7" {
						t.Errorf("trailers %v", res.Trailer)
					}
					if got := res.Header.Get("X-Retryproxy-Reason"); got != "retries_exhausted" || res.Header.Get("X-A") != "1" {
						t.Errorf("reason %q, headers %v", got, res.Header)
					}
					if m.Up.Sends() != 4 || m.Seen.Outcome(t, 0) != policy.OutcomeGaveUpRetriesExhausted {
						t.Errorf("%d sends, outcome %v", m.Up.Sends(), m.Seen.Outcome(t, 0))
					}
					c.Send(peers.Get("/")).Want(502, "*") // the client's connection goes on
				})
			})
		}
	}
}

func TestASlowFailedResponseThatIsCutOffIsCutOffForTheClient(t *testing.T) {
	slow := slowResponse{"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 100\r\n\r\nabc", "def"}
	proxytest.InMemory(t, slowScript(slow, slowResponse{}), patient, func(t *testing.T, m *proxytest.Memory) {
		res, body, err := m.Client().Send(peers.Get("/")).Response("GET")
		if res == nil || res.StatusCode != 503 || body != "abcdef" || err == nil {
			t.Errorf("%v %q %v", res, body, err)
		}
		if o := m.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
			t.Errorf("outcome %v", o)
		}
	})
}

func TestADrainRelaysTheRestOfAFailedResponse(t *testing.T) {
	slow := slowResponse{strings.Replace(slowBodies["length"].begin, "X-A", "Retry-After", 1), "def"}
	slow.begin = strings.Replace(slow.begin, "After: 1", "After: 20", 1)
	proxytest.InMemory(t, slowScript(slow), func(c *proxy.Config) { patient(c); c.DrainTimeout = time.Hour }, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(10 * time.Second)
		over := make(chan error, 1)
		go func() { over <- m.Drain(context.Background()) }()
		c.Want(503, "abcdef")
		if err := <-over; err != nil {
			t.Error(err)
		}
		if m.Up.Sends() != 1 || m.Seen.Outcome(t, 0) != policy.OutcomeGaveUpDraining {
			t.Errorf("%d sends, outcome %v", m.Up.Sends(), m.Seen.Outcome(t, 0))
		}
	})
}

func TestAFallbackDoesNotWaitForTheRestOfAFailedResponse(t *testing.T) {
	slow := slowBodies["length"]
	proxytest.InMemoryWithFallback(t, slowScript(slow), peers.Script(peers.FallbackOK), patient, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		m.Client().Send(peers.Get("/")).Want(200, "spare")
		time.Sleep(time.Hour)
	})
	proxytest.InMemoryWithFallback(t, slowScript(slow), peers.Script(peers.Bad503), patient, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		m.Client().Send(peers.Get("/")).Want(503, "abcdef")
		if s.Sends() != 1 {
			t.Errorf("%d sends to the fallback", s.Sends())
		}
	})
}

func TestAnEventStreamThatFailsAndDoesNotEndIsRetried(t *testing.T) {
	begin := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + peers.Chunks([]byte(peers.Overloaded), len(peers.Overloaded))
	begin = strings.TrimSuffix(begin, "0\r\n\r\n")
	slow := slowResponse{begin, "0\r\n\r\n"}
	change := func(c *proxy.Config) { patient(c); peers.HoldsStreams(t, c) }
	proxytest.InMemory(t, slowScript(slow, slowResponse{begin: peers.OK200}), change, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		time.Sleep(time.Hour)
	})
	proxytest.InMemory(t, slowScript(slow, slowResponse{}), change, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, peers.Overloaded)
	})
}

// The client leaves while its failed response is read: it is no reason against a retry.
func TestAClientThatLeavesDuringAFailedResponseIsGone(t *testing.T) {
	proxytest.InMemory(t, slowScript(slowBodies["length"]), patient, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(100 * time.Millisecond)
		c.Close()
		time.Sleep(time.Hour)
		if o := m.Seen.Outcome(t, 0); o != policy.OutcomeClientGone || m.Up.Sends() != 1 {
			t.Errorf("outcome %v, %d sends", o, m.Up.Sends())
		}
	})
}

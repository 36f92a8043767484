package retry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// The upstream's failing response arrives before the whole body. It is given up for a retry only
// while the body can be complete in time.
func TestAnEarlyFailingAnswerToASlowUpload(t *testing.T) {
	const later = "HTTP/1.1 %d X\r\nContent-Length: 6\r\n\r\nbusy"
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	for name, tc := range map[string]struct {
		framing, piece string
		rate           int64 // the least that a body must have
		pieces         int   // one each second, then silence
		status         int   // of the early answer
		most           time.Duration
		outcome        policy.Outcome
	}{
		"it trickles":              {length(1000), "x", 0, 1000, 503, 3 * time.Second, policy.GaveUp(policy.ReasonBodyUnfinished)},
		"it trickles, 413":         {length(1000), "x", 0, 1000, 413, time.Second, policy.OutcomeSuccess},
		"it stops":                 {length(1000), "x", 0, 3, 500, 3 * time.Second, policy.GaveUp(policy.ReasonBodyUnfinished)},
		"it trickles, no length":   {"Transfer-Encoding: chunked", "1\r\nx\r\n", 0, 1000, 503, 30*time.Second + downstream.PollEvery, policy.GaveUp(policy.ReasonBodyUnfinished)},
		"it stops, no length":      {"Transfer-Encoding: chunked", "1\r\nx\r\n", 0, 3, 503, 30*time.Second + downstream.PollEvery, policy.GaveUp(policy.ReasonBodyUnfinished)},
		"too slow, no length":      {"Transfer-Encoding: chunked", "1\r\nx\r\n", 256, 1000, 503, request.BodyGrace + 2*downstream.PollEvery, policy.GaveUp(policy.ReasonBodyUnfinished)},
		"it will be whole in time": {length(10), "x", 0, 10, 503, 11 * time.Second, policy.OutcomeRecovered},
	} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *peers.Conn) {
				for headers := c.Head(); headers != ""; headers = c.Head() {
					if c.Up.Sends() > 1 {
						peers.DiscardBody(c, headers)
						c.Say(peers.OK200)
						continue
					}
					c.Body(1)
					ended := make(chan struct{})
					go func() { defer close(ended); _, _ = c.EndOfInput() }()
					c.Say(later, tc.status)
					time.Sleep(100 * time.Millisecond)
					c.Say("..")
					<-ended
					return
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) { c.MinBodyRate = tc.rate }, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				c := m.Client().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", tc.framing))
				ended := make(chan struct{})
				defer func() { _ = c.Close(); <-ended }()
				go func() {
					defer close(ended)
					for range tc.pieces {
						if _, err := c.Write([]byte(tc.piece)); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				}()
				status, body := tc.status, "busy.."
				if tc.outcome == policy.OutcomeRecovered {
					status, body = 200, "ok"
				}
				c.Want(status, body)
				if d := time.Since(began); d > tc.most {
					t.Errorf("answered after %v, want %v at most", d, tc.most)
				}
				if o := m.Seen.Outcome(t, 0); o != tc.outcome {
					t.Errorf("outcome %v, want %v", o, tc.outcome)
				}
				if strings.HasSuffix(name, "time") != (m.Up.Sends() == 2) {
					t.Errorf("%d sends", m.Up.Sends())
				}
			})
		})
	}
}

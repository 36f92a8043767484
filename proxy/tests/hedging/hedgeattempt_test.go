package hedging

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A hedge whose pooled connection turns out to be closed goes over a fresh one.
func TestAHedgeOverAStaleConnectionIsSentAgain(t *testing.T) {
	warm := func(then func(c *peers.Conn)) func(c *peers.Conn) {
		return func(c *peers.Conn) {
			c.Head()
			time.Sleep(time.Duration(c.N) * time.Millisecond) // the second one is idle last, and used first
			c.Say(peers.OK200)
			then(c)
		}
	}
	handle := peers.ByConn(
		warm(func(c *peers.Conn) { time.Sleep(time.Second) }), // and closes
		warm(peers.NeverResponds),
		peers.RespondsAfter(0, peers.Response(200, "fresh")),
	)
	proxytest.InMemory(t, handle, peers.Hedged(t), func(t *testing.T, m *proxytest.Memory) {
		a := m.Client().Send(peers.Get("/"))
		synctest.Wait() // it has the first connection
		b := m.Client().Send(peers.Get("/"))
		a.Want(200, "ok")
		b.Want(200, "ok")
		time.Sleep(2 * time.Second)
		res := a.Send(peers.Get("/")).Want(200, "fresh")
		m.Seen.Outcome(t, 2)
		if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" || m.Up.Connections() != 3 || m.Up.Sends() != 4 {
			t.Errorf("attempts %q, %d connections, %d sends", got, m.Up.Connections(), m.Up.Sends())
		}
		if !slices.Equal(m.Seen.Classes[2:], []policy.Class{policy.Overtaken, policy.ClassNone}) || m.Seen.HedgesSent != 1 || m.Seen.HedgesWon != 1 {
			t.Errorf("classes %v, %d hedges, %d won", m.Seen.Classes, m.Seen.HedgesSent, m.Seen.HedgesWon)
		}
	})
}

// heedless is a connection whose reads no deadline ends, as one that has the response
// already when the deadline is moved.
type heedless struct{ net.Conn }

func (heedless) SetDeadline(time.Time) error     { return nil }
func (heedless) SetReadDeadline(time.Time) error { return nil }

// A hedge that is answered when the client has left already has won nothing.
func TestAHedgeWinsOnlyWhileTheClientStays(t *testing.T) {
	for name, leaves := range map[string]bool{"stays": false, "leaves": true} {
		t.Run(name, func(t *testing.T) {
			var goOn chan struct{}
			handle := peers.ByConn(peers.RespondsAfter(30*time.Millisecond, ""), func(c *peers.Conn) {
				c.Head()
				<-goOn
				c.Say(peers.OK200)
			})
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.Hedged(t)(c)
				dials, dial := 0, c.Default.Upstream.Dial
				c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					nc, err := dial(ctx, network, address)
					if dials++; dials == 2 {
						nc = heedless{nc}
					}
					return nc, err
				}
			}, func(t *testing.T, m *proxytest.Memory) {
				goOn = make(chan struct{}) // of the bubble
				c := m.Client().Send(peers.Get("/"))
				time.Sleep(time.Second) // the first has failed, the hedge is waited for
				want, won := policy.OutcomeRecovered, 1
				if leaves {
					want, won = policy.OutcomeClientGone, 0
					c.Close()
				}
				synctest.Wait()
				close(goOn)
				if !leaves {
					c.Want(200, "ok")
				}
				if o := m.Seen.Outcome(t, 0); o != want || m.Seen.HedgesSent != 1 || m.Seen.HedgesWon != won {
					t.Errorf("outcome %v, %d hedges, %d won", o, m.Seen.HedgesSent, m.Seen.HedgesWon)
				}
			})
		})
	}
}

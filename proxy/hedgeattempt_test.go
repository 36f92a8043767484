package proxy

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// A hedge whose pooled connection turns out to be closed goes over a fresh one.
func TestAHedgeOverAStaleConnectionIsSentAgain(t *testing.T) {
	warm := func(then func(c *upConn)) func(c *upConn) {
		return func(c *upConn) {
			c.head()
			time.Sleep(time.Duration(c.n) * time.Millisecond) // the second one is idle last, and used first
			c.say(ok200)
			then(c)
		}
	}
	handle := byConn(
		warm(func(c *upConn) { time.Sleep(time.Second) }), // and closes
		warm(neverResponds),
		respondsAfter(0, reply(200, "fresh")),
	)
	inMemory(t, handle, hedged(t), func(t *testing.T, m *memory) {
		a := m.client().send(get("/"))
		synctest.Wait() // it has the first connection
		b := m.client().send(get("/"))
		a.want(200, "ok")
		b.want(200, "ok")
		time.Sleep(2 * time.Second)
		res := a.send(get("/")).want(200, "fresh")
		m.seen.outcome(t, 2)
		if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" || m.up.connections() != 3 || m.up.sends() != 4 {
			t.Errorf("attempts %q, %d connections, %d sends", got, m.up.connections(), m.up.sends())
		}
		if !slices.Equal(m.seen.classes[2:], []policy.Class{policy.Overtaken, policy.ClassNone}) || m.seen.hedged != 1 || m.seen.hedgesWon != 1 {
			t.Errorf("classes %v, %d hedges, %d won", m.seen.classes, m.seen.hedged, m.seen.hedgesWon)
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
			handle := byConn(respondsAfter(30*time.Millisecond, ""), func(c *upConn) {
				c.head()
				<-goOn
				c.say(ok200)
			})
			inMemory(t, handle, func(c *Config) {
				hedged(t)(c)
				dials, dial := 0, c.Default.Upstream.Dial
				c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					nc, err := dial(ctx, network, address)
					if dials++; dials == 2 {
						nc = heedless{nc}
					}
					return nc, err
				}
			}, func(t *testing.T, m *memory) {
				goOn = make(chan struct{}) // of the bubble
				c := m.client().send(get("/"))
				time.Sleep(time.Second) // the first has failed, the hedge is waited for
				want, won := policy.OutcomeRecovered, 1
				if leaves {
					want, won = policy.OutcomeClientGone, 0
					c.Close()
				}
				synctest.Wait()
				close(goOn)
				if !leaves {
					c.want(200, "ok")
				}
				if o := m.seen.outcome(t, 0); o != want || m.seen.hedged != 1 || m.seen.hedgesWon != won {
					t.Errorf("outcome %v, %d hedges, %d won", o, m.seen.hedged, m.seen.hedgesWon)
				}
			})
		})
	}
}

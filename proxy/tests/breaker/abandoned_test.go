package breaker

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A request that was sent and whose client left keeps its permit and is an attempt of unknown end.
// A request of which no byte was sent is neither.
func TestOnlyWhatWasSentOccupiesTheUpstream(t *testing.T) {
	for _, c := range []struct {
		name, request string
		leaves        bool
		sends         int
		class         policy.Class
		abandoned     int
	}{
		{name: "the client leaves an attempt", request: peers.Get("/"), leaves: true, sends: 1, class: policy.Unknown, abandoned: 1},
		{name: "the first of the body is broken", request: "POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", class: policy.NotSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, release := make(chan struct{}, 1), make(chan struct{})
			u := peers.StartUpstream(t, func(up *peers.Conn) {
				if up.Head() != "" {
					asked <- struct{}{}
					<-release
				}
			})
			t.Cleanup(func() { close(release) })
			p := proxytest.Start(t, u, peers.WithBreaker)
			client := p.Dial().Send(c.request)
			if c.leaves {
				<-asked
				client.Close()
			}
			p.Seen.Outcome(t, 0)
			if got := p.Seen.Classes; len(got) != 1 || got[0] != c.class {
				t.Errorf("classes %v, want one %v", got, c.class)
			}
			if g := p.Guard(); g.Abandoned != c.abandoned || g.InFlight != c.abandoned {
				t.Errorf("%d places abandoned and %d taken, want %d of both", g.Abandoned, g.InFlight, c.abandoned)
			}
			if n := u.Sends(); n != c.sends {
				t.Errorf("%d requests came, want %d", n, c.sends)
			}
		})
	}
}

package proxy

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy"
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
		{name: "the client leaves an attempt", request: get("/"), leaves: true, sends: 1, class: policy.Unknown, abandoned: 1},
		{name: "the first of the body is broken", request: "POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", class: policy.NotSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, release := make(chan struct{}, 1), make(chan struct{})
			u := startUpstream(t, func(up *upConn) {
				if up.head() != "" {
					asked <- struct{}{}
					<-release
				}
			})
			t.Cleanup(func() { close(release) })
			p := startProxy(t, u, withBreaker)
			client := p.dial().send(c.request)
			if c.leaves {
				<-asked
				client.Close()
			}
			p.seen.outcome(t, 0)
			if got := p.seen.classes; len(got) != 1 || got[0] != c.class {
				t.Errorf("classes %v, want one %v", got, c.class)
			}
			if g := p.guard(); g.Abandoned != c.abandoned || g.InFlight != c.abandoned {
				t.Errorf("%d places abandoned and %d taken, want %d of both", g.Abandoned, g.InFlight, c.abandoned)
			}
			if n := u.sends(); n != c.sends {
				t.Errorf("%d requests came, want %d", n, c.sends)
			}
		})
	}
}

package cost

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestAKeyedRouteDoesNotAllocate(t *testing.T) {
	u := echoServer(t, 0, steadyOK)
	p := proxytest.Start(t, u, peers.SharedPause("Authorization"))
	c := p.Dial()
	request := []byte(steadyCases()[0].request)
	do := roundTrips(t, c.Conn, request, measureAnswer(t, c.Conn, request))
	p.ApplyRateLimitPause(1, time.Minute) // of somebody else, so that every request looks
	for range 50 {
		do()
	}
	wantNoAllocations(t, do)
}

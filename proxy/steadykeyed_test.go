package proxy

import (
	"testing"
	"time"
)

func TestAKeyedRouteDoesNotAllocate(t *testing.T) {
	u := echoServer(t, 0, steadyOK)
	p := startProxy(t, u, sharedPause("Authorization"))
	c := p.dial()
	request := []byte(steadyCases()[0].request)
	do := roundTrips(t, c.Conn, request, measureAnswer(t, c.Conn, request))
	p.ApplyRateLimitPause(1, time.Minute) // of somebody else, so that every request looks
	for range 50 {
		do()
	}
	wantNoAllocations(t, do)
}

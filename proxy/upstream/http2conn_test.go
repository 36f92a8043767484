package upstream

import (
	"sync"
	"testing"
)

func TestGoAwayTellsHowManyRequestsAConnectionTakes(t *testing.T) {
	for name, tc := range map[string]struct {
		uses, unprocessed, want int64
		goAway                  bool
	}{
		"a server that limits them":  {uses: 100, unprocessed: 3, want: 97, goAway: true},
		"one that took none":         {uses: 100, unprocessed: 100, want: 0, goAway: true},
		"a connection that was lost": {uses: 100, unprocessed: 3, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newHTTP2Conn(&http2Pool{}, "", nil)
			c.uses.Store(tc.uses)
			var streams sync.WaitGroup
			for range tc.unprocessed {
				streams.Go(func() { c.noteUnprocessed(tc.goAway) })
			}
			streams.Wait()
			if got := c.pool.usesLimit.Load(); got != tc.want {
				t.Errorf("%d requests are expected to be taken, want %d", got, tc.want)
			}
		})
	}
}

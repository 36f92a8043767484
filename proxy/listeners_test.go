package proxy

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
)

// However long accepting them takes, the clients that connected before a drain are accepted.
func TestADrainAcceptsAllClientsThatAreQueued(t *testing.T) {
	t.Parallel()
	const each = 30
	ls := listenerSet{closing: make(chan struct{})}
	if err := ls.open([]string{"127.0.0.1:0", "127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")}, nil); err != nil {
		t.Fatal(err)
	}
	for _, l := range ls.all {
		for range each {
			nc, err := net.Dial(l.Addr().Network(), l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
		}
	}
	busy, accepted := make(chan struct{}), make(chan string, len(ls.all)*each)
	ended := make(chan bool)
	go func() {
		ls.accept(func(nc net.Conn, name string) {
			<-busy
			_ = nc.Close()
			accepted <- name
		}, zap.NewNop)
		close(ended)
	}()
	ls.finish()
	time.Sleep(100 * time.Millisecond) // the accept loops have no time for the queue yet
	close(busy)
	<-ended
	close(accepted)
	names := map[string]int{}
	for name := range accepted {
		names[name]++
	}
	for _, l := range ls.all {
		if names[l.name] != each {
			t.Errorf("%s: %d of %d clients were accepted", l.Addr(), names[l.name], each)
		}
	}
}

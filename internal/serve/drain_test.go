package serve

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// timeout(1) and some shells send each signal twice.
func TestASignalThatComesTwiceAtOnceIsOne(t *testing.T) {
	for _, row := range []struct {
		name   string
		first  os.Signal
		seen   int
		then   []os.Signal
		after  time.Duration // before each of them
		forced bool
	}{
		{"the same at once", syscall.SIGTERM, 1, []os.Signal{syscall.SIGTERM}, 0, false},
		{"the same later", syscall.SIGTERM, 1, []os.Signal{syscall.SIGTERM}, sameSignal, true},
		{"another at once", syscall.SIGTERM, 1, []os.Signal{syscall.SIGINT}, 0, true},
		{"twice after a drain began", nil, 0, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, 0, false},
		{"one after a drain began, then another", nil, 0, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, sameSignal, true},
		{"a reload is none", syscall.SIGTERM, 1, []os.Signal{syscall.SIGHUP}, sameSignal, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals, done := make(chan os.Signal), make(chan struct{})
			forced := false
			go watchForce(signals, row.first, row.seen, func() { forced = true }, done)
			for _, s := range row.then {
				time.Sleep(row.after)
				signals <- s
				synctest.Wait()
			}
			if forced != row.forced {
				t.Errorf("%s: forced %v", row.name, forced)
			}
			close(done)
		})
	}
}

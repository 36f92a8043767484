package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/accepting"
)

// ListenError reports which address of Config.Listen cannot be listened on.
type ListenError struct {
	Address string
	Err     error
}

// Error returns the cause, which names the address.
func (e *ListenError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// listenerSet is the set of listening sockets.
type listenerSet struct {
	all     []listener
	pauses  atomic.Uint64 // times that accepting paused
	closing chan struct{} // closed when accepting must end
	once    sync.Once     // for closing
}

type listener struct {
	*accepting.Listener
	name string // for routes: "" is the main one
}

// open listens on all addresses. inherited may return an open listener for an address. If one
// address cannot be opened, it opens none and returns an error that joins a *ListenError for each.
func (ls *listenerSet) open(addresses []string, inherited func(string) net.Listener) error {
	var errs []error
	for i, addr := range addresses {
		l, err := socket(addr, inherited)
		if err != nil {
			errs = append(errs, &ListenError{addr, err})
			continue
		}
		name := addr
		if i == 0 {
			name = ""
		}
		ls.all = append(ls.all, listener{accepting.Wrap(l), name})
	}
	if len(errs) > 0 {
		ls.close()
		ls.all = nil
	}
	return errors.Join(errs...)
}

func socket(addr string, inherited func(string) net.Listener) (net.Listener, error) {
	if inherited != nil {
		if l := inherited(addr); l != nil {
			return l, nil
		}
	}
	return listen(addr)
}

func listen(addr string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if !isUnix {
		lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
		return lc.Listen(context.Background(), "tcp", addr)
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
	} else if fi, err := os.Stat(path); err == nil && fi.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path)
	}
	return net.Listen("unix", path)
}

// accept passes the clients of all listeners to admit, until finish or close. It pauses if the
// system has no descriptor left; new clients then stay in the system's queue.
func (ls *listenerSet) accept(admit func(net.Conn, string), log func() *zap.Logger) {
	var loops sync.WaitGroup
	for _, l := range ls.all {
		loops.Go(func() { ls.acceptFrom(l, admit, log) })
	}
	loops.Wait()
}

func (ls *listenerSet) acceptFrom(l listener, admit func(net.Conn, string), log func() *zap.Logger) {
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			admit(nc, l.name)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			ls.pauses.Add(1)
			log().Warn("accepting connections is paused", zap.Error(err))
			time.Sleep(acceptPause)
		}
	}
}

// acceptPause is the wait after a failed accept. It is long enough not to spin, and short enough
// to be unnoticed when a descriptor is free again.
const acceptPause = 50 * time.Millisecond

// stop records that accepting ends.
func (ls *listenerSet) stop() { ls.once.Do(func() { close(ls.closing) }) }

// finish lets the accept loops accept the clients that are in the system's queues, then ends them
// and closes the listeners.
func (ls *listenerSet) finish() {
	ls.stop()
	for _, l := range ls.all {
		l.Finish()
	}
}

func (ls *listenerSet) close() {
	for _, l := range ls.all {
		_ = l.Close()
	}
}

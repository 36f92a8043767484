package accepting

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// sockets returns an open listener of each kind.
func sockets(t *testing.T) map[string]net.Listener {
	t.Helper()
	all := map[string]net.Listener{}
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": filepath.Join(t.TempDir(), "s")} {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), network, address)
		if err != nil && network == "tcp6" {
			continue // a machine without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		all[network] = l
	}
	return all
}

// dial connects n clients, each of which sends a byte.
func dial(t *testing.T, l net.Listener, n int) (clients []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial(l.Addr().Network(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	return clients
}

func TestQueuedClientsAreAcceptedBeforeTheEnd(t *testing.T) {
	const queued = 30
	for network, socket := range sockets(t) {
		t.Run(network, func(t *testing.T) {
			l := Wrap(socket)
			clients := dial(t, l, queued)
			l.Finish()
			var accepted []net.Conn
			for {
				nc, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				accepted = append(accepted, nc)
			}
			if len(accepted) != queued {
				t.Fatalf("%d of %d were accepted", len(accepted), queued)
			}
			for _, nc := range accepted {
				if _, err := io.ReadFull(nc, make([]byte, 1)); err != nil {
					t.Error(err)
				}
				_ = nc.Close()
			}
			for _, c := range clients {
				if _, err := c.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("a client got %v", err)
				}
			}
			if c, err := net.Dial(socket.Addr().Network(), socket.Addr().String()); err == nil {
				_ = c.Close()
				t.Error("it still listens")
			}
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestFinishEndsAWaitingAccept(t *testing.T) {
	for network, socket := range sockets(t) {
		t.Run(network, func(t *testing.T) {
			l := Wrap(socket)
			ended := make(chan error, 1)
			go func() {
				for {
					nc, err := l.Accept()
					if err != nil {
						ended <- err
						return
					}
					t.Cleanup(func() { _ = nc.Close() })
				}
			}()
			dial(t, l, 1)
			l.Finish()
			l.Finish()
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// A process that shares the socket may accept the client that was seen in the queue.
func TestAcceptDoesNotWaitForAClientThatAnotherProcessTook(t *testing.T) {
	l := Wrap(&thief{sockets(t)["tcp"].(*net.TCPListener)})
	dial(t, l, 1)
	l.Finish()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// thief accepts each client itself just before it is accepted.
type thief struct{ *net.TCPListener }

func (l *thief) Accept() (net.Conn, error) {
	if nc, err := l.TCPListener.Accept(); err == nil {
		_ = nc.Close()
	}
	return l.TCPListener.Accept()
}

func TestAListenerThatCannotBeInspectedIsClosed(t *testing.T) {
	l := Wrap(struct{ net.Listener }{sockets(t)["tcp"]})
	l.Finish()
	began := make(chan error, 1)
	go func() { _, err := l.Accept(); began <- err }()
	select {
	case err := <-began:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits")
	}
}

package accepting

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Wait ends when the last connection has had a response or has ended, and not before.
func TestWaitEndsWithTheLastConnection(t *testing.T) {
	for _, last := range []http.ConnState{http.StateIdle, http.StateClosed, http.StateHijacked} {
		synctest.Test(t, func(t *testing.T) {
			var u Unserved
			conns := make([]net.Conn, 3)
			for i := range conns {
				conns[i], _ = net.Pipe()
				u.Note(conns[i], http.StateNew)
				u.Note(conns[i], http.StateActive)
			}
			began := time.Now()
			for i, c := range conns {
				time.AfterFunc(time.Duration(i+1)*time.Second, func() { u.Note(c, last) })
			}
			u.Wait(context.Background())
			if took := time.Since(began); took < 3*time.Second || took > 3*time.Second+10*time.Millisecond {
				t.Errorf("%v: it waited %v", last, took)
			}
			u.Wait(context.Background()) // nothing is left
			if took := time.Since(began); took > 3*time.Second+10*time.Millisecond {
				t.Errorf("%v: then it waited until %v", last, took)
			}
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u Unserved
		c, _ := net.Pipe()
		u.Note(c, http.StateNew)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		if u.Wait(ctx); time.Since(began) != time.Second {
			t.Errorf("it waited %v", time.Since(began))
		}
	})
}

// The connections of a server change their states at the same time.
func TestConnectionsAreNotedAtTheSameTime(t *testing.T) {
	var u Unserved
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 100 {
				c, _ := net.Pipe()
				u.Note(c, http.StateNew)
				u.Note(c, http.StateClosed)
			}
		})
	}
	all.Wait()
	u.Wait(context.Background())
}

// An error before Finish is the caller's, whatever it is.
func TestErrorsOfAcceptAreReturned(t *testing.T) {
	for _, want := range []error{errors.New("no descriptor"), net.ErrClosed} {
		l := Wrap(faulty{err: want})
		if _, err := l.Accept(); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// faulty is a listener that accepts nothing.
type faulty struct {
	net.Listener
	err error
}

func (f faulty) Accept() (net.Conn, error) { return nil, f.err }

// What is in the queue is seen, and what is not is not waited for.
func TestWhoWaitsInTheQueue(t *testing.T) {
	for network, socket := range sockets(t) {
		if clientWaits(socket) {
			t.Errorf("%s: a client before there is one", network)
		}
		dial(t, socket, 1)
		for range 1000 { // the system completes the connection soon
			if clientWaits(socket) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if !clientWaits(socket) {
			t.Errorf("%s: the client is not seen", network)
		}
		nc, err := socket.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.Close()
		if clientWaits(socket) {
			t.Errorf("%s: it is seen after it was accepted", network)
		}
	}
	if clientWaits(faulty{}) || inspectable(faulty{}) {
		t.Error("a listener without a descriptor can be inspected")
	}
}

// After Finish, an error that is not the end is returned, and the next call goes on.
func TestAnErrorAfterFinishIsNotTheEnd(t *testing.T) {
	socket := sockets(t)["tcp"].(*net.TCPListener)
	l := Wrap(&fails{TCPListener: socket})
	dial(t, l, 2)
	for range 1000 {
		if clientWaits(socket) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	l.Finish()
	if _, err := l.Accept(); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("the first: %v", err)
	}
	for range 2 {
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.Close()
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the last: %v", err)
	}
}

// fails finds no descriptor the first time.
type fails struct {
	*net.TCPListener
	once bool
}

func (f *fails) Accept() (net.Conn, error) {
	if !f.once {
		f.once = true
		return nil, errors.New("no descriptor")
	}
	return f.TCPListener.Accept()
}

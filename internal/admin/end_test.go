package admin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// drainedAfter asks for /drained and gives the status and how long it took.
func drainedAfter(ctx context.Context, e *End) (status int, took time.Duration) {
	began := time.Now()
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/drained", nil))
	return w.Code, time.Since(began)
}

// The hook of an application lasts as long as the drain, whichever began first,
// and does not hold up the restart of an application whose Pod stays.
func TestDrainedAnswersWhenTheDrainIsOver(t *testing.T) {
	for _, tc := range []struct {
		name          string
		begins, lasts time.Duration // begins < 0: never
		status        int
		after         time.Duration
	}{
		{name: "the drain begins at once", begins: 0, lasts: 20 * time.Second, status: http.StatusOK, after: 20 * time.Second},
		{name: "the hook was first", begins: 3 * time.Second, lasts: 60 * time.Second, status: http.StatusOK, after: 63 * time.Second},
		{name: "nothing was in flight", begins: 0, lasts: 0, status: http.StatusOK, after: 0},
		{name: "no drain", begins: -1, status: http.StatusConflict, after: noticed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := NewEnd()
				if tc.begins >= 0 {
					time.AfterFunc(tc.begins, e.Begin)
					time.AfterFunc(tc.begins+tc.lasts, e.Drained)
				}
				if status, took := drainedAfter(t.Context(), e); status != tc.status || took != tc.after {
					t.Errorf("%d after %v, want %d after %v", status, took, tc.status, tc.after)
				}
			})
		})
	}
}

// Who leaves is not waited for.
func TestDrainedEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEnd()
		e.Begin()
		ctx, leave := context.WithTimeout(t.Context(), 5*time.Second)
		defer leave()
		if _, took := drainedAfter(ctx, e); took != 5*time.Second {
			t.Errorf("ended after %v, want 5 s", took)
		}
	})
}

// oneConnection is a listener of one connection.
type oneConnection struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *oneConnection) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *oneConnection) Close() error   { close(l.closed); return nil }
func (l *oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

// A drain may last longer than the server's deadlines for reading and writing.
func TestDrainedOutlastsTheServersDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEnd()
		e.Begin()
		client, served := net.Pipe()
		l := &oneConnection{make(chan net.Conn, 1), make(chan struct{})}
		l.conn <- served
		server := &http.Server{Handler: e, ReadTimeout: readTimeout, WriteTimeout: writeTimeout}
		go func() { _ = server.Serve(l) }()
		time.AfterFunc(2*writeTimeout, e.Drained)
		if _, err := io.WriteString(client, "GET /drained HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK {
			t.Errorf("status %d, want 200", response.StatusCode)
		}
		_, _ = client.Close(), server.Close()
	})
}

// Who asks often keeps out neither others nor, later, himself.
func TestFewMayAskForTheEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEnd()
		ask := func(from string) int {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/drained", nil)
			r.RemoteAddr = from
			e.ServeHTTP(w, r)
			return w.Code
		}
		for range mostAskingFromOne {
			go ask("10.0.0.1:1")
		}
		synctest.Wait()
		if status := ask("10.0.0.1:2"); status != http.StatusServiceUnavailable {
			t.Errorf("one more of the same address: %d", status)
		}
		if status := ask("10.0.0.2:1"); status != http.StatusConflict {
			t.Errorf("another address: %d", status)
		}
		time.Sleep(time.Second)
		if status := ask("10.0.0.1:2"); status != http.StatusConflict {
			t.Errorf("after the first have their answer: %d", status)
		}
		for i := range mostAsking {
			go ask(net.JoinHostPort(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}).String(), "1"))
		}
		synctest.Wait()
		if status := ask("10.0.0.3:1"); status != http.StatusServiceUnavailable {
			t.Errorf("one more than all: %d", status)
		}
		time.Sleep(2 * noticed)
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.asking) != 0 || e.all != 0 {
			t.Errorf("%v, %d are left", e.asking, e.all)
		}
	})
}

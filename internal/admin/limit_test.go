package admin

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// silent opens n connections to addr that never send anything.
func silent(t *testing.T, addr string, n int) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// probe asks as a kubelet does, on a connection of its own, but with the time of our own.
func probe(addr string) error {
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get("http://" + addr + "/livez")
	if err == nil {
		_ = res.Body.Close()
	}
	return err
}

func TestProbesAreAnsweredAmong1500SilentConnections(t *testing.T) {
	s := start(t, false, "tcp", "127.0.0.1:0")
	silent(t, s.addr, 1500)
	for i := range 6 {
		if err := probe(s.addr); err != nil {
			t.Errorf("probe %d: %v", i, err)
		}
	}
}

func TestProbesAreAnsweredAmong1500SilentConnectionsOnASocket(t *testing.T) {
	s := start(t, false, "unix", t.TempDir()+"/admin")
	for range 1500 {
		conn, err := net.Dial("unix", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	for range 6 {
		began := time.Now()
		status, _ := send(t, "unix", s.addr, "GET /livez HTTP/1.1\nHost: x\n")
		if took := time.Since(began); status != 200 || took > 2*time.Second {
			t.Errorf("%d after %v", status, took)
		}
	}
}

// admitted returns a limit whose places are all taken: by answers to other machines as far as
// these may, else by silent connections from this one.
func admitted(t *testing.T, most int) (l *limited, answering []*limitedConn) {
	t.Helper()
	l = newLimited(nil, most)
	for i := range most {
		c := &limitedConn{of: l, since: time.Now().Add(time.Duration(i-most) * time.Second)}
		if c.busy = i < l.outside; c.busy {
			answering = append(answering, c)
		} else {
			c.local = true
		}
		if l.admit(c) != nil {
			t.Fatal("no place for number", i)
		}
	}
	return l, answering
}

func TestASilentConnectionGivesWayBeforeAnAnswer(t *testing.T) {
	l, answering := admitted(t, 16)
	if out := l.admit(&limitedConn{of: l, local: true, since: time.Now()}); out == nil || out.busy {
		t.Errorf("%+v gave way", out)
	}
	for _, a := range answering {
		if _, is := l.open[a]; !is {
			t.Error("a response in flight was cut")
		}
	}
	if len(l.open) != 16 {
		t.Errorf("%d are open", len(l.open))
	}
}

func TestTheOldestAnswerGivesWayIfAllAreBusy(t *testing.T) {
	l, answering := admitted(t, 16)
	if out := l.admit(&limitedConn{of: l, since: time.Now()}); out != answering[0] {
		t.Errorf("%+v gave way", out)
	}
}

func TestPlacesAreKeptForThisMachine(t *testing.T) {
	l, _ := admitted(t, 16)
	for range 100 {
		l.admit(&limitedConn{of: l, since: time.Now()})
	}
	if l.local != 2 || len(l.open) != 16 {
		t.Errorf("%d of %d connections are from this machine", l.local, len(l.open))
	}
}

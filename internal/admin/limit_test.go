package admin

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// openSilent opens n connections to addr that never send anything.
func openSilent(t *testing.T, addr string, n int) {
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
	s := start(t, "tcp", "127.0.0.1:0")
	openSilent(t, s.addr, 1500)
	for i := range 6 {
		if err := probe(s.addr); err != nil {
			t.Errorf("probe %d: %v", i, err)
		}
	}
}

// The kernel gives silent connections to the process after a while, or at once
// while it has to send SYN cookies.
func TestProbesAreAnsweredAmongSilentConnectionsThatTheKernelDoesNotHoldBack(t *testing.T) {
	s := start(t, "unix", t.TempDir()+"/admin")
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
		if took := time.Since(began); status != 200 || took > readHeaderTimeout*4/5 {
			t.Errorf("%d after %v", status, took)
		}
	}
}

func TestASilentConnectionGivesWayAtOnceAndAResponseDoesNot(t *testing.T) {
	l := newLimited(nil, 3)
	first, second, silentOne := newSlotConn(t, l, answering), newSlotConn(t, l, answering), newSlotConn(t, l, silent)
	for _, c := range []*slotConn{first, second, silentOne} {
		if !l.admit(c) {
			t.Fatal("no slot while some are free")
		}
	}
	first.since = first.since.Add(-enough)
	if !l.admit(newSlotConn(t, l, answering)) {
		t.Error("a silent connection keeps out one with a request")
	}
	if _, open := l.open[silentOne]; open || len(l.open) != 3 {
		t.Errorf("the silent one is open: %v; %d are", open, len(l.open))
	}
	if first.since = time.Now(); l.admit(newSlotConn(t, l, answering)) {
		t.Error("a response was cut that has just begun")
	}
	second.since = second.since.Add(-enough)
	if !l.admit(newSlotConn(t, l, answering)) {
		t.Error("a response that has had enough time keeps out another one")
	}
	if _, open := l.open[second]; open {
		t.Error("another response than the oldest was cut")
	}
}

// A connection that sends more requests than it reads responses gives way, even during a response.
func TestAConnectionThatPipelinesGivesWay(t *testing.T) {
	l := newLimited(nil, 2)
	one := newSlotConn(t, l, answering)
	here, there := net.Pipe()
	defer there.Close() //nolint:errcheck // a test's
	many := &slotConn{Conn: here, of: l, since: time.Now()}
	go func() { _, _ = io.WriteString(there, busyRequest+busyRequest) }()
	if _, err := many.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	noteState(many, http.StateIdle)
	noteState(many, http.StateActive)
	for _, c := range []*slotConn{one, many, newSlotConn(t, l, answering)} {
		if !l.admit(c) {
			t.Fatal("kept out")
		}
	}
	if _, open := l.open[many]; open {
		t.Error("it keeps its slot")
	}
}

func newSlotConn(t *testing.T, l *limited, s connState) *slotConn {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = there.Close() })
	return &slotConn{Conn: here, of: l, state: s, since: time.Now()}
}

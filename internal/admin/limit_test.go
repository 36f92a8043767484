package admin

import (
	"io"
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
	s := start(t, "tcp", "127.0.0.1:0")
	silent(t, s.addr, 1500)
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

// admitted is a limit whose slots are all taken: by answers to other machines as far as these
// may, else by silent connections from this one.
func admitted(t *testing.T, most int) (l *limited, answering []*slotConn) {
	t.Helper()
	l = newLimited(nil, most)
	for i := range most {
		c := newSlotConn(t, l)
		if c.busy = i < l.outside; c.busy {
			answering = append(answering, c)
		} else {
			c.local = true
		}
		if !l.admit(c) {
			t.Fatal("no slot for number", i)
		}
	}
	return l, answering
}

func newSlotConn(t *testing.T, l *limited) *slotConn {
	here, there := net.Pipe()
	t.Cleanup(func() { _ = there.Close() })
	return &slotConn{Conn: here, of: l, since: time.Now()}
}

func TestASilentConnectionGivesWayAtOnceAndAnAnswerDoesNot(t *testing.T) {
	l, answering := admitted(t, 16)
	c := newSlotConn(t, l)
	c.local, c.asked = true, true
	if !l.admit(c) {
		t.Error("silent connections keep somebody out who asks")
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

// One that asks for more before it is answered gives way to one that asks once, in the middle of a response too.
func TestAConnectionThatPipelinesGivesWay(t *testing.T) {
	l, answering := admitted(t, 16)
	here, there := net.Pipe()
	go func() { _, _ = io.WriteString(there, "GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n") }()
	answering[3].Conn = here
	if _, err := answering[3].Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	c := newSlotConn(t, l)
	if c.asked = true; !l.admit(c) {
		t.Fatal("kept out")
	}
	for i, a := range answering {
		if _, is := l.open[a]; is == (i == 3) {
			t.Errorf("connection %d is open: %v", i, is)
		}
	}
}

func TestSlotsAreKeptForThisMachine(t *testing.T) {
	l, answering := admitted(t, 16)
	for _, a := range answering {
		a.since = time.Now().Add(time.Hour) // it has not had enough time, however slow this machine is
	}
	c := newSlotConn(t, l)
	if c.asked = true; l.admit(c) {
		t.Error("another machine's took a slot of this one's, or cut a response")
	}
	c.local = true
	if !l.admit(c) {
		t.Error("no slot is left for this machine")
	}
}

// foreign says of its connections that they come from another machine, but of those that local tells of.
type foreign struct {
	net.Listener
	local chan bool
}

func (f *foreign) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil || <-f.local {
		return conn, err
	}
	return foreignConn{conn}, nil
}

type foreignConn struct{ net.Conn }

func (foreignConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// Other machines' requests wait for a slot; one from this machine comes after them and does not.
func TestNobodyWaitsBehindThoseWhoGetNoSlot(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &foreign{inner, make(chan bool, 100)}
	l := newLimited(f, 16)
	l.outside = 0   // none is left for other machines
	defer l.Close() //nolint:errcheck // a test's
	for _, local := range []bool{false, false, true} {
		f.local <- local
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // a test's
		_, _ = io.WriteString(conn, busyRequest)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if c := conn.(*slotConn); !c.local {
		t.Error("it is another machine's")
	}
	_ = conn.Close()
}

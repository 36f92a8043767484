package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// pair gives a pooled connection, handed out again unseen, and its server side.
func pair(t *testing.T) (*Pool, *Conn, net.Conn) {
	t.Helper()
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	get(t, p, GetOptions{}).Release(0)
	theirs := s.accept()
	c := p.TryPooled(&GetOptions{Unchecked: true})
	if c == nil {
		t.Fatal("no pooled connection")
	}
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	return p, c, theirs
}

func TestSendCheckedSendsAndReadsTheResponse(t *testing.T) {
	_, c, theirs := pair(t)
	defer c.Close()
	go func() {
		buf := make([]byte, 4)
		for {
			if _, err := io.ReadFull(theirs, buf); err != nil {
				return
			}
			_, _ = theirs.Write(append([]byte("re:"), buf...))
		}
	}()
	in := make([]byte, 64)
	for range 2000 { // a response that comes at once must never be slept through
		sent, n, err := c.SendChecked([][]byte{[]byte("ping")}, in)
		if sent != 4 || err != nil || string(in[:n]) != "re:ping" {
			t.Fatalf("sent %d, read %q, %v", sent, in[:n], err)
		}
	}
}

func TestSendCheckedSendsNothingOnAStaleConnection(t *testing.T) {
	for name, spoil := range map[string]func(net.Conn){
		"closed":   func(c net.Conn) { c.Close() },
		"reset":    func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() },
		"spoke":    func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n")) },
		"said 408": func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 408 Request Timeout\r\n\r\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			p, c, theirs := pair(t)
			spoil(theirs)
			for c.checkIdle() == idleOpen {
				time.Sleep(time.Millisecond)
			}
			sent, n, err := c.SendChecked([][]byte{[]byte("ping")}, make([]byte, 64))
			if sent != 0 || n != 0 || !errors.Is(err, ErrStale) {
				t.Fatalf("sent %d, read %d, %v", sent, n, err)
			}
			c.CloseUnsent()
			got := p.Stats()
			if want := uint64(1); name == "spoke" && got.Unsolicited != want || name != "spoke" && got.IdleCloses != want {
				t.Errorf("counted %+v", got)
			}
			if got.Active != 0 || got.Idle != 0 {
				t.Errorf("still held: %+v", got)
			}
		})
	}
}

func TestSendCheckedReportsTheEndOfTheStream(t *testing.T) {
	_, c, theirs := pair(t)
	defer c.Close()
	go func() {
		_, _ = io.ReadFull(theirs, make([]byte, 4))
		theirs.Close()
	}()
	sent, n, err := c.SendChecked([][]byte{[]byte("ping")}, make([]byte, 64))
	if sent != 4 || n != 0 || err != io.EOF {
		t.Errorf("sent %d, read %d, %v", sent, n, err)
	}
}

func TestSendCheckedEndsAtTheDeadlineAndTheResponseCanStillBeRead(t *testing.T) {
	_, c, theirs := pair(t)
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	in := make([]byte, 64)
	sent, n, err := c.SendChecked([][]byte{[]byte("ping")}, in)
	if sent != 4 || n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("sent %d, read %d, %v", sent, n, err)
	}
	_, _ = theirs.Write([]byte("late"))
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
	if n, err := c.Read(in); string(in[:n]) != "late" {
		t.Errorf("read %q, %v", in[:n], err)
	}
}

func TestSendCheckedReportsHowMuchTheSocketTook(t *testing.T) {
	out := bytes.Repeat([]byte("x"), 32<<20) // more than any socket buffer holds
	_, c, theirs := pair(t)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	sent, n, err := c.SendChecked([][]byte{out}, make([]byte, 64))
	if sent == 0 || sent == len(out) || n != 0 || err != nil {
		t.Fatalf("sent %d of %d, read %d, %v", sent, len(out), n, err)
	}
	go func() { _, _ = c.Write(out[sent:]) }()
	if got, _ := io.CopyN(io.Discard, theirs, int64(len(out))); got != int64(len(out)) {
		t.Errorf("%d bytes arrived", got)
	}
}

func TestOnlyPlainSocketsCanSendChecked(t *testing.T) {
	if _, c, _ := pair(t); !c.CanSendChecked() {
		t.Error("a TCP connection cannot")
	}
}

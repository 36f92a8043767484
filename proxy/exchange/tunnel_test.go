package exchange

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A peer has the whole idle time to take what it is sent, however long the tunnel was silent before.
func TestATunnelsSilenceIsNotItsReadersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, src := net.Pipe()
		dst, to := net.Pipe()
		tu := &tunnel{idle: time.Minute}
		tu.over.Store(true) // the test closes the connections
		done := make(chan struct{})
		go func() { defer close(done); tu.copy(dst, src) }()
		time.Sleep(tu.idle - time.Second)
		_, _ = from.Write([]byte("late"))
		time.Sleep(tu.idle - time.Second)
		got := make([]byte, 4)
		_ = to.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.ReadFull(to, got); err != nil || string(got) != "late" {
			t.Errorf("%q %v", got, err)
		}
		_ = from.Close()
		<-done
		_ = dst.Close()
	})
}

const switched = "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"

func upgrade(behind string) string { return get("Connection: Upgrade", "Upgrade: chat") + behind }

// A tunnel moves what each side sends to the other, from the first byte behind request and response to the end.
func TestTunnels(t *testing.T) {
	const s = time.Second
	// hears notes each piece that the upstream got by the tunnel, and the end.
	hears := func(sv *served, from io.Reader) {
		b := make([]byte, 100)
		for {
			n, err := from.Read(b)
			if n > 0 {
				sv.noteAside("%v %q", sv.elapsed(), b[:n])
			}
			if err != nil {
				sv.noteAside("%v the end", sv.elapsed())
				return
			}
		}
	}
	type tunnelled struct {
		name     string
		request  string
		more     func(*served) []any // of the client
		upstream func(*served, net.Conn)
		story    string
		client   string
	}
	for _, c := range []tunnelled{
		{"what was sent early comes first", upgrade("early"), func(*served) []any { return []any{s, "late", s, closes} },
			func(*served, net.Conn) {},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, closed, 0s \"early\", 1s \"late\", 2s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"},
		{"both ways", upgrade(""), func(*served) []any { return []any{s, "from the client", 2 * s, closes} },
			func(_ *served, c net.Conn) {
				time.Sleep(2 * s)
				_, _ = io.WriteString(c, "from upstream")
			},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, closed, 1s \"from the client\", 3s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\nfrom upstream"},
		{"idle", upgrade(""), func(*served) []any { return nil },
			func(*served, net.Conn) {},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, closed, 1m0s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"},
		{"the client is idle, the upstream is not", upgrade(""), func(*served) []any { return nil },
			func(_ *served, c net.Conn) {
				time.Sleep(40 * s)
				_, _ = io.WriteString(c, "a")
			},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, closed, 1m40s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\na"},
		{"the upstream is idle, the client is not", upgrade(""), func(*served) []any { return []any{40 * s, "b"} },
			func(*served, net.Conn) {},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, closed, 40s \"b\", 1m40s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"},
		{"the upstream ends", upgrade(""), func(*served) []any { return nil },
			func(_ *served, c net.Conn) {
				time.Sleep(s)
				_ = c.Close()
			},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, closed, 1s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"},
		{"it is ended", upgrade(""), func(sv *served) []any { return []any{s, sv.x.EndTunnel, sv.x.EndTunnel} },
			func(*served, net.Conn) {},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, closed, 1s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"},
		{"the client breaks", upgrade(""), func(sv *served) []any { return []any{s, sv.client.Leave} },
			func(_ *served, c net.Conn) {
				time.Sleep(2 * s)
				_, _ = io.WriteString(c, "lost")
			},
			"0s GET /a, ok 101 after 0s, 0s done 101 upgraded 1, reset, 2s the end",
			"HTTP/1.1 101 X\r\nX-Retryproxy-Attempts: 1\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sv *served
			talk := func(conn net.Conn, in io.Reader) {
				over := make(chan struct{})
				go func() { defer close(over); c.upstream(sv, conn) }()
				hears(sv, in)
				<-over
			}
			inMemory(t, []step{{switched, talk, closes}}, nil, func(s *served) {
				sv = s
				s.more = c.more(s)
				s.serve(c.request)
				s.wants(c.story, c.client)
				if s.conn.Buffered() > 0 || !s.x.WasTunnel() {
					s.Errorf("%d bytes are left; a tunnel: %v", s.conn.Buffered(), s.x.WasTunnel())
				}
			})
		})
	}
}

// An upstream that refuses to switch has sent an ordinary response, and there is no tunnel.
func TestARefusedUpgradeIsNoTunnel(t *testing.T) {
	inMemory(t, []step{{answer(426, "no")}}, nil, func(s *served) {
		s.serve(upgrade(""))
		s.wants("0s GET /a, ok 426 after 0s, 0s done 426 success 1", got(426, "no", 1))
		s.x.EndTunnel()
		if s.x.WasTunnel() {
			s.Error("it was a tunnel")
		}
	})
}

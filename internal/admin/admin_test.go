package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type served struct {
	addr   string
	ready  atomic.Pointer[error]
	drains atomic.Int32
	quits  atomic.Int32

	percent atomic.Int32
	changes atomic.Int32
}

// start serves on a real listener until the test ends.
func start(t *testing.T, network, address string) *served {
	t.Helper()
	s := &served{}
	server := New(Options{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }),
		Ready: func() error {
			if why := s.ready.Load(); why != nil {
				return *why
			}
			return nil
		},
		Config: func() any { return map[string]string{"a": "b"} },
		Drain:  func() { s.drains.Add(1) },
		Quit:   func() { s.quits.Add(1) },
		RetryPercent: RetryPercent{
			Get: func() int { return int(s.percent.Load()) },
			Set: func(n int) { s.percent.Store(int32(n)); s.changes.Add(1) },
		},
		Page: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) }),
	})
	if err := server.Listen(network, address); err != nil {
		t.Fatal(err)
	}
	s.addr = server.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(server.Close(ctx), <-ended); err != nil {
			t.Error(err)
		}
	})
	return s
}

// send writes a raw request and returns status and body.
func send(t *testing.T, network, addr, request string) (int, string) {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test's
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")+"Connection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error("no nosniff")
	}
	return response.StatusCode, string(body)
}

func TestOpenToAll(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		// as a prober or scraper elsewhere would ask, through a proxy too
		status, _ := send(t, "tcp", s.addr, "GET "+path+" HTTP/1.1\nHost: pod.example:9797\nX-Forwarded-For: 1.2.3.4\nOrigin: http://evil.example\n")
		if status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := send(t, "tcp", s.addr, "POST /livez HTTP/1.1\nHost: x\nContent-Length: 0\n"); status != 405 {
		t.Errorf("POST /livez: %d", status)
	}
}

func TestReadinessSaysWhyNot(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	why := errors.New("draining")
	s.ready.Store(&why)
	if status, body := send(t, "tcp", s.addr, "GET /readyz HTTP/1.1\nHost: x\n"); status != 503 || body != "draining\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, _ := send(t, "tcp", s.addr, "GET /livez HTTP/1.1\nHost: x\n"); status != 200 {
		t.Errorf("liveness depends on readiness: %d", status)
	}
}

func TestLocalOnly(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	for _, tt := range []struct {
		fields string
		want   int
	}{
		{"Host: localhost", 200},
		{"Host: localhost:9797", 200},
		{"Host: LOCALHOST", 200},
		{"Host: 127.0.0.1:9797", 200},
		{"Host: 127.1.2.3", 200},
		{"Host: [::1]:9797", 200},
		{"Host: [::1]", 200},
		{"Host: localhost:9797\nOrigin: http://localhost:9797", 200},
		{"Host: localhost:9797\nSec-Fetch-Site: same-origin", 200},
		{"Host: localhost\nSec-Fetch-Site: none", 200},

		{"Host: evil.example", 403},
		{"Host: evil.example:9797", 403},
		{"Host: localhost.evil.example", 403},
		{"Host: x.localhost", 403},
		{"Host: 10.0.0.1", 403},
		{"Host: 127.0.0.1.nip.io", 403},
		{"Host: 2130706433", 403},
		{"Host:", 403},
		{"Host: localhost\nOrigin: http://evil.example", 403},
		{"Host: localhost\nOrigin: null", 403},
		{"Host: localhost\nOrigin: https://localhost", 403},
		{"Host: localhost:9797\nOrigin: http://localhost:9798", 403},
		{"Host: localhost\nOrigin: http://localhost\nOrigin: http://evil.example", 403},
		{"Host: localhost\nSec-Fetch-Site: cross-site", 403},
		{"Host: localhost\nSec-Fetch-Site: same-site", 403},
		{"Host: localhost\nX-Forwarded-For: 127.0.0.1", 403},
		{"Host: localhost\nForwarded: for=1.2.3.4", 403},
		{"Host: localhost\nVia: 1.1 x", 403},
		{"Host: localhost\nX-Retryproxy-Attempt: 1", 403},
		{"Host: localhost\nX-Forwarded-Proto: http", 403},
		{"Host: localhost\nX-Forwarded-Host: localhost", 403},
	} {
		for _, line := range []string{"GET /config", "GET /", "GET /page/events", "GET /page/state.json", "GET /debug/pprof/", "GET /debug/pprof/cmdline"} {
			if status, body := send(t, "tcp", s.addr, line+" HTTP/1.1\n"+tt.fields+"\n"); status != tt.want {
				t.Errorf("%s, %q: %d %q, want %d", line, tt.fields, status, body, tt.want)
			}
		}
		for path, done := range map[string]*atomic.Int32{"/drain": &s.drains, "/quit": &s.quits} {
			before := done.Load()
			status, _ := send(t, "tcp", s.addr, "POST "+path+" HTTP/1.1\nContent-Length: 0\n"+tt.fields+"\n")
			if begun := done.Load() > before; begun != (tt.want == 200) || begun != (status == 202) {
				t.Errorf("POST %s, %q: %d, done %v", path, tt.fields, status, begun)
			}
		}
	}
}

func TestPageHasItsPathsAndNoOthers(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	for path, want := range map[string]int{"/": 200, "/page/main.js": 200, "/page": 302, "/other": 404, "/pages": 404} {
		if status, body := send(t, "tcp", s.addr, "GET "+path+" HTTP/1.1\nHost: localhost\n"); status != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
}

// A link, an image or a prefetch is a GET.
func TestOrdersAreOnlyTakenByPost(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	for _, path := range []string{"/drain", "/quit"} {
		for _, method := range []string{"GET", "PATCH", "PUT", "OPTIONS"} {
			if status, _ := send(t, "tcp", s.addr, method+" "+path+" HTTP/1.1\nHost: localhost\nContent-Length: 0\n"); status != 405 {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
	if d, q := s.drains.Load(), s.quits.Load(); d != 0 || q != 0 {
		t.Errorf("%d drains, %d quits", d, q)
	}
}

// Busybox's wget cannot post without saying that it is a form.
func TestQuitIsTakenFromWget(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	if status, body := send(t, "tcp", s.addr, "POST /quit HTTP/1.1\nHost: localhost:9797\nContent-Type: application/x-www-form-urlencoded\nContent-Length: 0\n"); status != 202 || body != "ending\n" {
		t.Errorf("%d %q", status, body)
	}
	if n := s.quits.Load(); n != 1 {
		t.Errorf("%d quits", n)
	}
}

// The address of a connection from elsewhere cannot be had in a test of one
// machine, so its check is tested by itself.
func TestLoopbackAddresses(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"10.0.0.1:1": false, "[fe80::1%eth0]:1": false, "[::ffff:10.0.0.1]:1": false, "0.0.0.0:1": false, "@": false, "": false,
	} {
		if got := isLoopbackAddr(addr); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

func TestFromElsewhereIsRefused(t *testing.T) {
	r, _ := http.NewRequest("GET", "http://localhost/config", nil)
	r.RemoteAddr = "10.0.0.1:1234"
	if checkLocal(r) == nil {
		t.Error("let through")
	}
	r.RemoteAddr = "127.0.0.1:1234"
	if err := checkLocal(r); err != nil {
		t.Error(err)
	}
}

func TestUnixSocket(t *testing.T) {
	s := start(t, "unix", filepath.Join(t.TempDir(), "a.sock"))
	if status, body := send(t, "unix", s.addr, "GET /config HTTP/1.1\nHost: localhost\n"); status != 200 || !strings.Contains(body, `"a": "b"`) {
		t.Errorf("%d %q", status, body)
	}
	if status, _ := send(t, "unix", s.addr, "GET /config HTTP/1.1\nHost: evil.example\n"); status != 403 {
		t.Errorf("wrong Host over a socket: %d", status)
	}
}

// The server may reset the connection before its 431 is read, since it leaves
// bytes unread.
func TestLongHeadIsRefused(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	for size, refused := range map[int]bool{maxHeaderBytes / 2: false, maxHeaderBytes * 2: true} {
		r, _ := http.NewRequest("GET", "http://"+s.addr+"/livez", nil)
		r.Header.Set("X", strings.Repeat("x", size))
		r.Close = true
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = response.Body.Close()
		}
		if got := err != nil || response.StatusCode == 431; got != refused {
			t.Errorf("%d bytes: refused %v (%v)", size, got, err)
		}
	}
}

// crowded is a server of admin's limit, and a connection per line, each of which has
// sent its line and nothing more.
func crowded(t *testing.T, most int, lines ...string) (addr string, all []net.Conn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{}, len(lines))
	leave := make(chan struct{})
	server := &http.Server{ConnState: noteState, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			began <- struct{}{}
			<-leave
		}
	})}
	ended := make(chan error, 1)
	l := newLimited(inner, most)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		close(leave)
		if err := server.Close(); err != nil || !errors.Is(<-ended, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	for i, line := range lines {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, line); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "/busy") {
			<-began
		}
		for open := 0; open <= i; time.Sleep(time.Millisecond) { // in the order of the lines
			l.mu.Lock()
			open = len(l.open)
			l.mu.Unlock()
		}
		all = append(all, conn)
	}
	return inner.Addr().String(), all
}

// isClosed waits until the other side has closed conn, and says no after limit.
func isClosed(conn net.Conn, limit time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

const (
	busyRequest = "GET /busy HTTP/1.1\r\nHost: a\r\n\r\n"
	halfAHead   = "GET /livez HTTP/1.1\r\nHo"
)

func TestTheConnectionThatSaysNothingTheLongestGivesWay(t *testing.T) {
	addr, all := crowded(t, 3, busyRequest, halfAHead, "")
	time.Sleep(enough)
	if status, _ := sendAny(t, addr); status != 200 {
		t.Errorf("%d", status)
	}
	if !isClosed(all[1], 5*time.Second) {
		t.Error("half a head keeps its place")
	}
	for _, i := range []int{0, 2} {
		if isClosed(all[i], 50*time.Millisecond) { // can only pass wrongly
			t.Errorf("connection %d was closed", i)
		}
	}
}

func TestAnAnswerGivesWayLast(t *testing.T) {
	addr, all := crowded(t, 2, busyRequest, "")
	time.Sleep(enough)
	if status, _ := sendAny(t, addr); status != 200 { // the silent one gave way to it
		t.Errorf("%d", status)
	}
	if isClosed(all[0], 50*time.Millisecond) { // can only pass wrongly
		t.Error("a response in flight was cut")
	}
	addr, all = crowded(t, 2, busyRequest, busyRequest)
	if status, _ := sendAny(t, addr); status != 200 {
		t.Errorf("%d", status)
	}
	if !isClosed(all[0], 5*time.Second) {
		t.Error("a response without end keeps its place")
	}
}

// sendAny asks for something that is answered at once.
func sendAny(t *testing.T, addr string) (int, string) {
	t.Helper()
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get("http://" + addr + "/")
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer res.Body.Close() //nolint:errcheck // a test's
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

// A probe or a scrape that connected before the end gets its response.
func TestClientsThatConnectedBeforeTheEndAreServed(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": t.TempDir() + "/s"} {
		t.Run(network, func(t *testing.T) {
			server := New(Options{Metrics: http.NotFoundHandler()})
			if err := server.Listen(network, address); err != nil {
				t.Fatal(err)
			}
			var clients []net.Conn
			for range 30 {
				c, err := net.Dial(network, server.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close() //nolint:errcheck // a test's
				if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				clients = append(clients, c)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			closed := make(chan error, 1)
			go func() { closed <- server.Close(ctx) }()
			time.Sleep(50 * time.Millisecond) // the process has no time to accept before Close
			if err := server.Serve(); err != nil {
				t.Error(err)
			}
			for _, c := range clients {
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				response, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || response.StatusCode != 200 {
					t.Fatal(response, err)
				}
				_ = response.Body.Close()
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
			if c, err := net.Dial(network, server.Addr().String()); err == nil {
				_ = c.Close()
				t.Error("it still listens")
			}
		})
	}
}

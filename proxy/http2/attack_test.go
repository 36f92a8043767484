package http2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

// script is a client that writes what was appended to it at once.
type script struct {
	bytes.Buffer
	*http2.Framer
	nc   net.Conn
	c    *Conn
	over chan struct{}
	text bytes.Buffer
	enc  *hpack.Encoder
	id   uint32
}

// dialScript serves a connection on loopback.
func dialScript(t *testing.T, o *Options, settings ...http2.Setting) *script {
	t.Helper()
	near, far := tcptest.Pair(t)
	s := &script{nc: far, c: NewConn(near, o), over: make(chan struct{})}
	go func() { s.c.Run(); _ = near.Close(); close(s.over) }()
	s.Framer = http2.NewFramer(&s.Buffer, far)
	s.AllowIllegalWrites = true
	s.enc = hpack.NewEncoder(&s.text)
	s.WriteString(Preface)
	_ = s.WriteSettings(settings...)
	t.Cleanup(func() { _ = far.Close(); <-s.over; o.Workers.Close() })
	return s
}

func (s *script) open(ends bool) {
	s.id += 2
	s.text.Reset()
	for i := 0; i < len(getFields); i += 2 {
		_ = s.enc.WriteField(hpack.HeaderField{Name: getFields[i], Value: getFields[i+1]})
	}
	_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id - 1, BlockFragment: s.text.Bytes(), EndStream: ends, EndHeaders: true})
}

func (s *script) send(t *testing.T) {
	t.Helper()
	if _, err := s.nc.Write(s.Bytes()); err != nil {
		t.Fatal(err)
	}
	s.Reset()
}

// Many downloads at once, with windows that do not matter, all come to their end.
func TestManyDownloadsEnd(t *testing.T) {
	const streams, size = 50, 1 << 20
	s := dialScript(t, options(func(s *textStream) {
		if _, err := readHead(s); err != nil {
			return
		}
		fmt.Fprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		p := make([]byte, 64<<10)
		for range size / len(p) {
			if _, err := s.Write(p); err != nil {
				return
			}
		}
	}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = s.WriteWindowUpdate(0, 1<<30)
	for range streams {
		s.open(true)
	}
	s.send(t)
	_ = s.nc.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.CopyN(io.Discard, s.nc, streams*size); err != nil {
		t.Errorf("%d of %d bytes: %v", n, streams*size, err)
	}
}

// Responses that are all headers wait, too, for a client that does not read.
func TestHeadersWaitForRoom(t *testing.T) {
	big := strings.Repeat("x", 8000)
	s := dialScript(t, options(func(s *textStream) {
		if _, err := readHead(s); err != nil {
			return
		}
		fmt.Fprintf(s, "HTTP/1.1 204 No Content\r\nX-A: %s\r\n\r\n", big)
	}))
	var most int
	for range 50 {
		for range 50 {
			s.open(true)
		}
		_ = s.nc.SetWriteDeadline(time.Now().Add(2 * time.Second)) // the rest of the streams waits
		if _, err := s.nc.Write(s.Bytes()); err != nil {
			break
		}
		s.Reset()
		time.Sleep(2 * time.Millisecond)
		s.c.mu.Lock()
		most = max(most, s.c.out.waits())
		s.c.mu.Unlock()
	}
	if most > 1<<20 {
		t.Errorf("%d bytes waited", most)
	}
}

// A client earns a window only for what it sent and was read, not for the sizes of chunks that we add.
func TestTinyFramesEarnNoWindow(t *testing.T) {
	var unread, granted atomic.Int64
	o := options(func(s *textStream) {
		_, _ = readHead(s)
		p := make([]byte, 4096)
		for {
			n, err := s.Read(p)
			if err != nil {
				return
			}
			s.c.mu.Lock()
			unread.Store(max(unread.Load(), int64(s.unread()+n)))
			s.c.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	s := dialScript(t, o)
	s.open(false)
	s.send(t)
	granted.Store(int64(o.Window))
	go func() {
		for {
			f, err := s.ReadFrame()
			if err != nil {
				return
			}
			if w, is := f.(*http2.WindowUpdateFrame); is && w.StreamID == 1 {
				granted.Add(int64(w.Increment))
			}
		}
	}()
	one := []byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 'x'}
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		n := min(granted.Load(), 2000)
		if n == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		granted.Add(-n)
		if _, err := s.nc.Write(bytes.Repeat(one, int(n))); err != nil {
			t.Fatal(err)
		}
	}
	if n := unread.Load(); n > int64(7*o.Window) {
		t.Errorf("%d bytes were unread, with a window of %d", n, o.Window)
	}
}

// Reads that end within headers are no slow headers, however many there are.
func TestHeadersThatAreAlwaysCutByAReadAreInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(echo)
		o.HeaderTimeout, o.PingAfter = time.Second, 0
		p := dialFrames(t, o)
		var all bytes.Buffer
		f := http2.NewFramer(&all, nil)
		const n = 100
		for i := range n {
			p.text.Reset()
			for i := 0; i < len(getFields); i += 2 {
				_ = p.enc.WriteField(hpack.HeaderField{Name: getFields[i], Value: getFields[i+1]})
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: p.text.Bytes(), EndStream: true, EndHeaders: true})
			rest := all.Next(all.Len() - 2)
			if _, err := p.nc.Write(rest); err != nil {
				t.Fatalf("after %d requests: %v", i, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		_, _ = p.nc.Write(all.Bytes())
		p.want(fmt.Sprintf("%d: \"", 2*n-1))
	})
}

// A value that is too long is too large a request, and no fault of the connection.
func TestAValueThatIsTooLongGets431(t *testing.T) {
	o := options(echo)
	o.HeaderBytes = 8 << 10
	p := dialFrames(t, o)
	p.begin(true, with("x-a", strings.Repeat("\\", 9<<10))...)
	p.want("1: :status=431")
	p.begin(true, getFields...)
	p.want("3: \"")
}

// An idle connection is told before it ends, so that a request on its way is served.
func TestAnIdleConnectionIsToldBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(echo)
		o.IdleTimeout, o.PingAfter = time.Minute, 0
		p := dialFrames(t, o)
		time.Sleep(time.Minute)
		p.want("away 2147483647 NO_ERROR")
		p.begin(true, getFields...)
		p.want("1: \"")
		p.want("end")
	})
}

// A WebSocket whose client ends it, with its headers or behind its bytes, reads its end. A length says nothing
// about the bytes of a tunnel.
func TestAWebSocketThatItsClientEndsReadsItsEnd(t *testing.T) {
	for _, length := range [][]string{nil, {"content-length", "3"}, {"content-length", "9"}} {
		aWebSocketReads(t, "", length...)
		aWebSocketReads(t, "bytes", length...)
	}
}

// aWebSocketReads checks what the handler of a WebSocket reads, if its client sends want with these headers, and ends.
func aWebSocketReads(t *testing.T, want string, headers ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		read, got := "", make(chan error, 1)
		p := dialFrames(t, options(func(s *textStream) {
			_, _ = readHead(s)
			_, _ = io.WriteString(s, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = s.SetReadDeadline(time.Now().Add(time.Minute))
			b, err := io.ReadAll(s)
			read = string(b)
			got <- err
		}))
		p.begin(want == "", append([]string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "h.test", ":path", "/"}, headers...)...)
		p.want("1: :status=200")
		if want != "" {
			_ = p.WriteData(1, true, []byte(want))
		}
		if err := <-got; err != nil || read != want {
			t.Errorf("%v: %q %v, want %q", headers, read, err, want)
		}
	})
}

// A WebSocket goes on after its own end until its client ends it, too. One that was refused ends with its response.
func TestAWebSocketEndsOneWayAtATime(t *testing.T) {
	for _, tc := range []struct{ response, want string }{
		{"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "late"},
		{"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			read, got := "", make(chan error, 1)
			p := dialFrames(t, options(func(s *textStream) {
				_, _ = readHead(s)
				_, _ = io.WriteString(s, tc.response)
				if opened := tc.want != ""; (s.CloseWrite() == nil) != opened || s.CloseWrite() == nil {
					t.Errorf("opened: %v; it was not ended once, or ended although it was not opened", opened)
				}
				_ = s.SetReadDeadline(time.Now().Add(time.Minute))
				b, err := io.ReadAll(s)
				read = string(b)
				got <- err
			}))
			p.begin(false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "h.test", ":path", "/")
			if tc.want != "" {
				p.want(`1: "" end`)
				time.Sleep(time.Second)
				_ = p.WriteData(1, true, []byte(tc.want))
			}
			if err := <-got; err != nil || read != tc.want {
				t.Errorf("%q %v, want %q", read, err, tc.want)
			}
		})
	}
}

// A request whose body must end before it is served is one that GOAWAY waits for.
func TestGoAwayWaitsForARequestThatIsNotServedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := options(echo)
		c := NewConn(far, o)
		ended := make(chan struct{})
		go func() { c.Run(); _ = far.Close(); close(ended) }()
		p := &peer{Framer: http2.NewFramer(near, near), t: t, nc: near, more: make(chan struct{}, 1), over: make(chan struct{})}
		p.enc = hpack.NewEncoder(&p.text)
		go p.read()
		_, _ = io.WriteString(near, Preface)
		_ = p.WriteSettings()
		p.begin(false, with("content-length", "0")...)
		c.GoAway()
		time.Sleep(time.Second)
		_ = p.WriteData(1, true, nil)
		p.want("1: \"")
		<-ended
		<-p.over
		o.Workers.Close()
	})
}

// One frame of SETTINGS cannot have every stream looked at thousands of times.
func TestTooManySettingsEndTheConnection(t *testing.T) {
	p := dialFrames(t, options(echo))
	var many []http2.Setting
	for i := range mostSettings + 1 {
		many = append(many, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
	}
	_ = p.WriteSettings(many...)
	p.want("away 0 ENHANCE_YOUR_CALM")
}

// Streams that come in the same read after the connection has ended of its own do not begin: nobody would
// end them.
func TestNoStreamBeginsOnAConnectionThatHasEnded(t *testing.T) {
	served := make(chan struct{}, 100)
	o := options(func(s *textStream) {
		served <- struct{}{}
		_, _ = readHead(s)
		fmt.Fprintf(s, "HTTP/1.1 204 No Content\r\nX-A: %s\r\n\r\n", strings.Repeat("x", 8000))
	})
	c := NewConn(nil, o)
	c.settled = true
	c.opening = frame{stream: 1, flags: FlagEndStream}
	c.err = errVanished
	c.fields.reset(1 << 10)
	for i := 0; i < len(getFields); i += 2 {
		c.fields.add(hpack.HeaderField{Name: getFields[i], Value: getFields[i+1]})
	}
	if err := c.headersCame(); err != errVanished || len(c.ready) > 0 || len(served) > 0 {
		t.Errorf("%v, and %d streams begin", err, len(c.ready))
	}
}

package http2

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// What a client sends beyond the window of a stream ends the stream; padding counts, and is credited at once.
func TestMoreThanTheWindowEndsAStream(t *testing.T) {
	p := dialFrames(t, options(func(s *textStream) { _, _ = readHead(s); <-s.Done() }))
	p.begin(false, getFields...)
	for range 4 {
		_ = p.WriteRawFrame(0, 8, 1, append([]byte{255}, make([]byte, FrameSize-1)...))
	}
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	_ = p.WriteData(1, false, make([]byte, 4*256+1))
	p.want("1: reset FLOW_CONTROL_ERROR")
}

// A client may fill the window of a stream with padding alone. The body behind it still comes.
func TestPaddingAloneStopsNoBody(t *testing.T) {
	p := dialFrames(t, options(func(s *textStream) {
		r, err := http.ReadRequest(bufio.NewReader(s))
		if err != nil {
			return
		}
		if body, err := io.ReadAll(r.Body); string(body) == "x" && err == nil {
			_, _ = io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}))
	p.begin(false, getFields...)
	for range 4 * FrameSize / 256 {
		_ = p.WriteDataPadded(1, false, nil, make([]byte, 255))
	}
	p.want("1: window")
	_ = p.WriteData(1, true, []byte("x"))
	p.want("1: \"ok\"")
}

// A client that SETTINGS make wait gets the rest when its window is positive again.
func TestAWindowMayBecomeNegative(t *testing.T) {
	p := dialFrames(t, options(func(s *textStream) {
		_, _ = readHead(s)
		_, _ = fmt.Fprint(s, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678")
	}))
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	p.begin(true, getFields...)
	p.want(`1: "123"`)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	_ = p.WriteWindowUpdate(1, 2)
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	_ = p.WriteWindowUpdate(1, 2)
	p.want(`1: "45"`)
	_ = p.WriteWindowUpdate(1, 9)
	p.want(`1: "678" end`)
}

// Header blocks that decode to far more than they are cost no memory and no connection (HPACK bombs).
func TestHeadersThatExpandAreTooLarge(t *testing.T) {
	tooLarge := 0
	o := options(echo)
	o.HeaderBytes, o.TooLarge = 16<<10, func() ([]http1.Header, []byte) {
		tooLarge++
		return []http1.Header{http1.NewHeader("X-A", "b")}, []byte("body")
	}
	p := dialFrames(t, o)
	p.begin(true, with("x-bomb", strings.Repeat("b", 3000))...) // goes to the table
	p.want("1: \"")
	bomb := with()
	for range 10000 {
		bomb = append(bomb, "x-bomb", strings.Repeat("b", 3000)) // one byte each
	}
	p.begin(true, bomb...)
	p.want("3: :status=431 x-a=b content-length=4")
	p.want(`3: "body" end`)
	p.begin(true, getFields...)
	p.want("5: \"")
	if tooLarge != 1 {
		t.Errorf("counted %d times", tooLarge)
	}
}

// The next block after a client made its table smaller says so, once: no table is used (RFC 7541 section 4.2).
func TestASmallerTableIsAcknowledged(t *testing.T) {
	for value, want := range map[uint32]string{0: "\x20\x88\x88", defaultHeaderTable: "\x88\x88"} {
		c := NewConn(nil, options(echo))
		if err := c.takeSetting(settingHeaderTableSize, value); err != nil {
			t.Fatal(err)
		}
		var blocks []byte
		for range 2 {
			blocks = append(blocks, c.encode(func(dst []byte) []byte { return append(dst, 0x88) })...) // :status 200
		}
		if string(blocks) != want {
			t.Errorf("with a table of %d: %x, want %x", value, blocks, want)
		}
	}
}

// Each crumb of a cookie counts with its 32 bytes before it is stored. What fits is joined.
func TestCrumbsOfACookieAreBounded(t *testing.T) {
	const limit, crumb = 16 << 10, "a=b"
	most := (limit - 300) / (len("cookie") + len(crumb) + fieldCost) // 300: for the other fields
	o := options(echo)
	o.HeaderBytes = limit
	p := dialFrames(t, o)
	for _, n := range []int{most, most + 20} {
		request := with()
		for range n {
			request = append(request, "cookie", crumb)
		}
		id := p.begin(true, request...)
		if n > most {
			p.want(fmt.Sprintf("%d: :status=431", id))
		} else if got := p.want(fmt.Sprintf("%d: \"", id)); !strings.Contains(got, "Cookie: a=b"+strings.Repeat("; a=b", n-1)+`\r`) {
			t.Errorf("%d crumbs came as %s", n, got)
		}
	}
	var f fields
	f.reset(limit)
	for range 10 * most {
		f.add(hpack.HeaderField{Name: "cookie", Value: crumb})
	}
	if len(f.list) > most+20 {
		t.Errorf("%d crumbs were stored", len(f.list))
	}
}

// A client that resets its streams at once has no more workers than streams, and what it reset before it had
// one is never served (CVE-2023-44487).
func TestResetStreamsKeepTheirWorkers(t *testing.T) {
	release := make(chan struct{})
	var running, most, served atomic.Int64
	o := options(func(s *textStream) {
		served.Add(1)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		running.Add(-1)
	})
	o.Streams = 4
	p := dialFrames(t, o)
	for range 100 {
		id := p.begin(true, getFields...)
		_ = p.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	close(release)
	p.begin(true, getFields...) // is served when the others have ended
	p.want(fmt.Sprintf("%d: reset INTERNAL_ERROR", p.id-1))
	if most.Load() > 4 || served.Load() > 5 {
		t.Errorf("%d at once, %d in all", most.Load(), served.Load())
	}
}

// More streams than allowed are refused, which a client may repeat.
func TestMoreStreamsThanAllowedAreRefused(t *testing.T) {
	release := make(chan struct{})
	o := options(func(s *textStream) { <-release; echo(s) })
	o.Streams = 2
	p := dialFrames(t, o)
	p.begin(true, getFields...)
	p.begin(true, getFields...)
	p.begin(true, getFields...)
	p.want("5: reset REFUSED_STREAM")
	close(release)
	p.want("1: \"")
	p.want("3: \"")
}

// A client that asks and does not read is not kept.
func TestAClientThatSendsAndDoesNotReadIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := options(echo)
		o.WriteTimeout, o.PingAfter = 0, 0
		var fault error
		o.Fault = func(err error) { fault = err }
		ended := make(chan struct{})
		go func() { NewConn(far, o).Run(); _ = far.Close(); close(ended) }()
		f := http2.NewFramer(near, near)
		_, _ = io.WriteString(near, Preface)
		_ = f.WriteSettings()
		for range 2 * mostUnwritten / 17 { // bytes of an answer
			if f.WritePing(false, [8]byte{}) != nil {
				break
			}
		}
		_ = near.Close()
		<-ended
		if fault == nil || !strings.Contains(fault.Error(), "does not read") {
			t.Error(fault)
		}
	})
}

// A body whose reader is behind is counted, and can be given up; its reader gets the error, also if the end comes.
func TestABodyThatNobodyReadsCanBeGivenUp(t *testing.T) {
	for _, ends := range []int{0, 3, 4} { // with which piece; 0: not at all
		read := make(chan struct{})
		result := make(chan error, 1)
		o := options(func(s *textStream) {
			_, _ = readHead(s)
			<-read
			n, err := s.ReadBody(make([]byte, 1<<20))
			if n > 0 || s.BodyRead() {
				t.Errorf("%d bytes were read; all of it: %v", n, s.BodyRead())
			}
			result <- err
		})
		o.Backlog = NewBacklog(1)
		p := dialFrames(t, o)
		p.begin(false, getFields...)
		for i := range max(3, ends) {
			_ = p.WriteData(1, i+1 == ends, make([]byte, 15<<10))
		}
		_ = p.WritePing(false, [8]byte{})
		p.want("pong")
		if n := o.Backlog.Ended(); n != 1 {
			t.Fatalf("%d were given up", n)
		}
		close(read)
		if err := <-result; err != ErrNotRead {
			t.Errorf("its reader got %v", err)
		}
	}
}

// Workers that are not needed end.
func TestWorkersEndWhenTheyAreNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(echo)
		p := dialFrames(t, o)
		for range 20 {
			p.begin(true, getFields...)
		}
		time.Sleep(time.Millisecond)
		o.Workers.mu.Lock()
		some := len(o.Workers.idle)
		o.Workers.mu.Unlock()
		time.Sleep(3 * trimEvery)
		o.Workers.mu.Lock()
		defer o.Workers.mu.Unlock()
		if some == 0 || len(o.Workers.idle) != 0 || o.Workers.trimming {
			t.Errorf("%d were idle, and %d are", some, len(o.Workers.idle))
		}
	})
}

// A client that has read the end of a response may open another stream, however late its worker returns.
func TestAnEndedStreamMakesRoomForAnother(t *testing.T) {
	release := make(chan struct{})
	o := options(func(s *textStream) { echo(s); <-release })
	o.Streams = 1
	p := dialFrames(t, o)
	p.begin(true, getFields...)
	p.want("1: \"")
	p.begin(true, getFields...)
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	close(release)
	p.mu.Lock()
	refused := slices.ContainsFunc(p.seen, func(frame string) bool { return strings.Contains(frame, "REFUSED") })
	p.mu.Unlock()
	if refused {
		t.Fatal("it was refused")
	}
	p.want("3: \"")
}

// A gRPC client keeps one connection: as many streams as are advertised are served at once.
func TestAThousandStreamsAreServedAtOnce(t *testing.T) {
	const streams = 1000
	var all sync.WaitGroup
	all.Add(streams)
	o := options(func(s *textStream) { all.Done(); all.Wait(); echo(s) })
	o.Streams = streams
	p := dialFrames(t, o)
	for range streams {
		p.begin(true, getFields...)
	}
	for i := range streams {
		p.want(fmt.Sprintf("%d: \"", 2*i+1))
	}
}

// A response whose reader has not run since it came is not given up: its client is not slow, and the upstream is not
// at fault. Once the headers were read, its reader can be behind.
func TestAResponseThatNobodyCouldReadYetIsNotGivenUp(t *testing.T) {
	o := upstreamOptions()
	o.Backlog = NewBacklog(1)
	p, c := toUpstream(t, o)
	s := ask(t, c, getRequest)
	p.want("1: ")
	send := func() {
		for range 3 {
			_ = p.WriteData(1, false, make([]byte, 15<<10))
		}
		p.sync()
	}
	_ = s.UpstreamStream.SetReadDeadline(time.Unix(1, 0))
	if _, err := s.UpstreamStream.ReadHead(); !errors.Is(err, os.ErrDeadlineExceeded) { // its reader is to read again
		t.Fatal(err)
	}
	_ = s.UpstreamStream.SetReadDeadline(time.Time{})
	p.headers(1, false, ":status", "200")
	send()
	head, err := s.UpstreamStream.ReadHead()
	if head.Put(); err != nil {
		t.Fatal("before its headers were read: ", err)
	}
	var got int
	for b := make([]byte, 16<<10); s.unread() > 0; {
		n, err := s.UpstreamStream.Read(b)
		if got += n; err != nil {
			t.Fatal("after its headers were read: ", err)
		}
	}
	if send(); o.Backlog.Ended() != 1 {
		t.Errorf("%d were given up after %d bytes, want the one whose reader is behind", o.Backlog.Ended(), got)
	}
}

// The excuse of a reader that is expected to read does not last: an upstream may hold it up.
func TestAReaderThatDoesNotReadIsExcusedBriefly(t *testing.T) {
	for _, informs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := upstreamOptions()
			o.Backlog = NewBacklog(1)
			p, c := toUpstream(t, o)
			s := ask(t, c, getRequest)
			p.want("1: ")
			if informs { // the wait for the final headers times out
				p.headers(1, false, ":status", "103")
				head, err := s.UpstreamStream.ReadHead()
				if head.Put(); err != nil {
					t.Fatal(err)
				}
				_ = s.UpstreamStream.SetReadDeadline(time.Now().Add(-1))
				if _, err := s.UpstreamStream.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				_ = s.UpstreamStream.SetReadDeadline(time.Time{})
			}
			p.headers(1, false, ":status", "200")
			for range 3 {
				_ = p.WriteData(1, false, make([]byte, 15<<10))
			}
			p.sync()
			time.Sleep(readerDelay)
			another := func() { o.Backlog.Wait(1, func() bool { return false })() }
			if another(); o.Backlog.Ended() != 0 {
				t.Fatalf("informs %v: it was given up within %v", informs, readerDelay)
			}
			time.Sleep(time.Millisecond)
			if another(); o.Backlog.Ended() != 1 {
				t.Errorf("informs %v: it was not given up after %v", informs, readerDelay)
			}
			if _, err := s.UpstreamStream.Read(make([]byte, 1)); err != ErrNotRead {
				t.Errorf("informs %v: its reader got %v", informs, err)
			}
		})
	}
}

// A reader that waits is not behind, although it has not run since more came than it waits for.
func TestABodyWhoseReaderWaitsIsNotGivenUp(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	s := ask(t, c, getRequest)
	p.want("1: ")
	p.headers(1, false, ":status", "200")
	head, err := s.UpstreamStream.ReadHead()
	if head.Put(); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := s.UpstreamStream.Read(make([]byte, 1))
		read <- err
	}()
	s.c.mu.Lock()
	for s.into == nil {
		s.c.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.c.mu.Lock()
	}
	s.receive(make([]byte, 40<<10), 40<<10, false) // the reader cannot run before mu is unlocked
	behind := s.isBehind()
	s.c.mu.Unlock()
	if err := <-read; behind || err != nil {
		t.Errorf("it waits: behind %v, %v", behind, err)
	}
	if !s.giveUp() {
		t.Error("nobody reads, and it was not given up")
	}
}

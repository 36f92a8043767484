package http2

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

func TestARequestToAnUpstream(t *testing.T) {
	for name, tc := range map[string]struct{ request, want, body string }{
		"GET":             {getRequest, "1: :method=GET :scheme=http :path=/a?b :authority=h.test end", ""},
		"an empty query":  {"GET /? HTTP/1.1\r\nHost: h.test\r\n\r\n", "1: :method=GET :scheme=http :path=/? :authority=h.test end", ""},
		"other methods":   {"PROPFIND //a HTTP/1.1\r\nHost: h\r\n\r\n", "1: :method=PROPFIND :scheme=http :path=//a :authority=h end", ""},
		"OPTIONS *":       {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "1: :method=OPTIONS :scheme=http :path=* :authority=h end", ""},
		"an empty body":   {postRequest(0), "1: :method=POST :scheme=http :path=/ :authority=h.test content-length=0 end", ""},
		"a body":          {postRequest(2) + "ab", "1: :method=POST :scheme=http :path=/ :authority=h.test content-length=2", `1: "ab" end`},
		"headers":         {"GET / HTTP/1.1\r\nHost: h\r\nX-A: b\r\nConnection: close\r\nTe: trailers\r\n\r\n", "1: :method=GET :scheme=http :path=/ :authority=h x-a=b te=trailers end", ""},
		"chunks":          {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "1: :method=PUT :scheme=http :path=/ :authority=h", `1: "ab"`},
		"chunks, trailer": {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-T: 1\r\n\r\n", "1: :method=PUT :scheme=http :path=/ :authority=h", "1: x-t=1 end"},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := toUpstream(t, upstreamOptions())
			ask(t, c, tc.request)
			if got := p.want("1: :method"); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if tc.body != "" {
				p.want(tc.body)
			}
		})
	}
}

// What an upstream responds reads as HTTP/1.1.
func TestAResponseReadsAsHTTP1(t *testing.T) {
	status := []string{":status", "200"}
	for name, tc := range map[string]struct {
		method string
		send   func(p *peer)
		want   string // the whole text, or the beginning of an error
	}{
		"a length": {"GET", func(p *peer) {
			p.headers(1, false, append(status, "content-length", "2", "x-a", "b")...)
			_ = p.WriteData(1, true, []byte("ok"))
		}, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok"},
		"no length": {"GET", func(p *peer) { p.headers(1, false, status...); _ = p.WriteData(1, true, []byte("ok")) }, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
		"no body":   {"GET", func(p *peer) { p.headers(1, true, status...) }, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		"trailers": {"GET", func(p *peer) {
			p.headers(1, false, append(status, "content-length", "1", "trailer", "x-t")...)
			_ = p.WriteData(1, false, []byte("a"))
			p.headers(1, true, "x-t", "1")
		}, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTrailer: x-t\r\n\r\na"},
		"HEAD": {"HEAD", func(p *peer) { p.headers(1, true, append(status, "content-length", "7")...) }, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"},
		"304":  {"GET", func(p *peer) { p.headers(1, true, ":status", "304", "content-length", "7") }, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"},
		"interim": {"GET", func(p *peer) {
			p.headers(1, false, ":status", "103", "link", "x")
			p.headers(1, true, ":status", "204")
		}, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"},
		"of an HTTP/1.1 connection": {"GET", func(p *peer) { p.headers(1, true, ":status", "204", "connection", "x", "transfer-encoding", "chunked") }, "HTTP/1.1 204 No Content\r\n\r\n"},
		"no status":                 {"GET", func(p *peer) { p.headers(1, true, "x-a", "1") }, "! bad_header"},
		"a status twice":            {"GET", func(p *peer) { p.headers(1, true, ":status", "200", ":status", "200") }, "! bad_header"},
		"a status of two digits":    {"GET", func(p *peer) { p.headers(1, true, ":status", "20") }, "! bad_header"},
		"a status below 100":        {"GET", func(p *peer) { p.headers(1, true, ":status", "099") }, "! bad_header"},
		"a switch of protocols":     {"GET", func(p *peer) { p.headers(1, false, ":status", "101") }, "! bad_header"},
		"an interim end":            {"GET", func(p *peer) { p.headers(1, true, ":status", "103") }, "! bad_header"},
		"a line in a value":         {"GET", func(p *peer) { p.headers(1, true, ":status", "200", "x-a", "b\r\nx-c: d") }, "! bad_header"},
		"a line in a name":          {"GET", func(p *peer) { p.headers(1, true, ":status", "200", "x-a\r\nb", "c") }, "! bad_header"},
		"an upper case name":        {"GET", func(p *peer) { p.headers(1, true, ":status", "200", "X-A", "b") }, "! bad_header"},
		"a length that is none":     {"GET", func(p *peer) { p.headers(1, true, ":status", "200", "content-length", "1x") }, "! bad_header"},
		"two lengths":               {"GET", func(p *peer) { p.headers(1, true, ":status", "200", "content-length", "1", "content-length", "2") }, "! bad_header"},
		"less than the length": {"GET", func(p *peer) {
			p.headers(1, false, append(status, "content-length", "2")...)
			_ = p.WriteData(1, true, []byte("o"))
		}, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n! the upstream reset"},
		"more than the length": {"GET", func(p *peer) {
			p.headers(1, false, append(status, "content-length", "2")...)
			_ = p.WriteData(1, true, []byte("oops"))
		}, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n! the upstream reset"},
		"a body before the headers": {"GET", func(p *peer) { _ = p.WriteData(1, true, nil) }, "! the upstream reset"},
		"a body after HEAD":         {"HEAD", func(p *peer) { p.headers(1, false, status...); _ = p.WriteData(1, true, []byte("oops")) }, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n! the upstream reset"},
		"an end without the body":   {"GET", func(p *peer) { p.headers(1, true, append(status, "content-length", "2")...) }, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"},
		"cut": {"GET", func(p *peer) {
			p.headers(1, false, status...)
			_ = p.WriteData(1, false, []byte("a"))
			_ = p.WriteRSTStream(1, http2.ErrCodeInternal)
		}, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n! the upstream reset"},
		"refused": {"GET", func(p *peer) { _ = p.WriteRSTStream(1, http2.ErrCodeRefusedStream) }, "! " + ErrRefused.Error()},
		"trailers before the body's end": {"GET", func(p *peer) {
			p.headers(1, false, append(status, "content-length", "2")...)
			p.headers(1, true, "x-t", "1")
		}, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n! the upstream reset"},
		"trailers without an end":   {"GET", func(p *peer) { p.headers(1, false, status...); p.headers(1, false, "x-t", "1") }, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n! the upstream reset"},
		"pseudo-headers at the end": {"GET", func(p *peer) { p.headers(1, false, status...); p.headers(1, true, ":status", "200") }, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n! the upstream reset"},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := toUpstream(t, upstreamOptions())
			s := ask(t, c, tc.method+" / HTTP/1.1\r\nHost: a\r\n\r\n")
			p.want("1: :method")
			tc.send(p)
			text, err := io.ReadAll(s)
			got := string(text)
			var refused *http1.Error
			switch {
			case errors.As(err, &refused):
				got += "! " + refused.Reason.String()
			case err != nil:
				got += "! " + err.Error()
			}
			if !strings.HasPrefix(got, tc.want) || strings.Contains(got, "!") != strings.Contains(tc.want+name, "!") && name != "an end without the body" {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if n := c.InFlight(); n != 0 {
				t.Errorf("%d streams are open", n)
			}
		})
	}
}

// Trailers come behind a body with a length as behind any other. What is not allowed among them is left out.
func TestTrailersBehindALength(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	s := ask(t, c, getRequest)
	p.want("1: :method")
	p.headers(1, false, ":status", "200", "content-length", "1")
	_ = p.WriteData(1, false, []byte("a"))
	p.headers(1, true, "x-t", " 1 ", "content-length", "5")
	if _, body, err := respondedWith(s, "GET"); body != "a" || err != nil {
		t.Errorf("%q %v", body, err)
	}
	if _, err := s.ReadBody(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	if got := s.Trailers(); len(got) != 1 || string(got[0].Name) != "X-T" || string(got[0].Value) != "1" {
		t.Errorf("%q", got)
	}
}

// One stream is opened until the upstream has said how many it allows, and never more than those.
func TestStreamsAreOpenedWithinTheSettings(t *testing.T) {
	o := upstreamOptions()
	told := make(chan int, 1)
	o.Settled = func(n int) { told <- n }
	p, c := toUpstream(t, o, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 3})
	if n := <-told; n != 3 {
		t.Errorf("%d streams", n)
	}
	var all []*textUpstream
	for s := newTextUpstream(c.Open()); s != nil; s = newTextUpstream(c.Open()) {
		all = append(all, s)
	}
	if len(all) != 3 {
		t.Errorf("%d were opened", len(all))
	}
	_ = all[0].Close()
	_ = all[0].Close()
	if !c.HasRoom() || c.InFlight() != 2 {
		t.Errorf("%d are in flight", c.InFlight())
	}
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
	p.sync()
	if c.HasRoom() {
		t.Error("more than are allowed now")
	}
	for _, s := range all[1:] {
		_ = s.Close()
	}
}

func TestOneStreamIsOpenedBeforeTheSettings(t *testing.T) {
	near, _ := newPipe(t)
	o := upstreamOptions()
	c := NewUpstream(near, &o)
	defer c.abandon()
	if s := newTextUpstream(c.Open()); s == nil || c.Open() != nil {
		t.Error("not one")
	}
	if c.AssumeSettings(); !c.HasRoom() {
		t.Error("no more after the wait")
	}
}

// Streams beyond the last one that counts were not processed; the others end in order, and then the
// connection does.
func TestAnUpstreamGoesAway(t *testing.T) {
	o := upstreamOptions()
	left, lost := make(chan struct{}), make(chan int, 1)
	o.Leaving = func() { close(left) }
	o.WentAway = func(taken int) { lost <- taken }
	p, c := toUpstream(t, o)
	p.sync()
	first, second, third := ask(t, c, getRequest), ask(t, c, getRequest), ask(t, c, getRequest)
	p.want("5: :method")
	reserved := newTextUpstream(c.Open())
	_ = p.WriteGoAway(1, http2.ErrCodeNo, nil)
	<-left
	for _, s := range []*textUpstream{second, third} {
		if _, err := s.Read(make([]byte, 1)); err != ErrUnprocessed {
			t.Error(err)
		}
	}
	if n := <-lost; n != 1 || len(lost) > 0 {
		t.Errorf("%d were processed", n)
	}
	if !c.IsLeaving() || c.Open() != nil {
		t.Error("it takes more")
	}
	_ = p.WriteGoAway(5, http2.ErrCodeNo, nil) // cannot take back what was said before (RFC 9113 section 6.8)
	p.sync()
	if _, err := io.WriteString(reserved, getRequest); err != nil {
		t.Error(err)
	}
	if n := <-lost; n != 1 {
		t.Errorf("%d were processed, after a GOAWAY that takes back another one", n)
	}
	p.headers(1, false, ":status", "200")
	_ = p.WriteData(1, true, []byte("ok"))
	if status, body, err := respondedWith(first, "GET"); status != 200 || body != "ok" || err != nil {
		t.Errorf("%d %q %v", status, body, err)
	}
	p.want("end")
}

// A stream that was opened and not used when the connection ends was not processed, either.
func TestARequestAfterTheEndWasNotProcessed(t *testing.T) {
	for name, end := range map[string]func(p *peer){
		"GOAWAY": func(p *peer) { _ = p.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"closed": func(p *peer) { _ = p.nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			o := upstreamOptions()
			left := make(chan struct{})
			o.Leaving = func() { close(left) }
			p, c := toUpstream(t, o)
			p.sync()
			s := newTextUpstream(c.Open())
			end(p)
			<-left
			if _, err := io.WriteString(s, getRequest); err != nil {
				t.Error(err)
			}
			if _, err := s.Read(make([]byte, 1)); err != ErrUnprocessed {
				t.Error(err)
			}
		})
	}
}

// A response that is whole before the request: the rest is not sent, and the response can be read.
func TestAResponseBeforeTheEndOfTheRequest(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	s := ask(t, c, postRequest(10)+"abc")
	p.want(`1: "abc"`)
	p.headers(1, false, ":status", "413", "content-length", "2")
	_ = p.WriteData(1, true, []byte("no"))
	_ = p.WriteRSTStream(1, http2.ErrCodeNo)
	p.sync()
	if _, err := io.WriteString(s, "d"); err == nil {
		t.Error("more was taken")
	}
	if status, body, err := respondedWith(s, "POST"); status != 413 || body != "no" || err != nil {
		t.Errorf("%d %q %v", status, body, err)
	}
}

// A write that ends at its deadline leaves the response to be read.
func TestAWriteToAnUpstreamEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := toUpstream(t, upstreamOptions(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2})
		p.sync()
		s := ask(t, c, postRequest(10))
		_ = s.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := io.WriteString(s, "abcdef"); n != 6 && err == nil {
			t.Errorf("%d %v", n, err)
		}
		p.headers(1, true, ":status", "204")
		if status, _, err := respondedWith(s, "POST"); status != 204 || err != nil {
			t.Errorf("%d %v", status, err)
		}
	})
}

// The window of a stream may become negative, and grow again.
func TestAnUpstreamsWindowMayBecomeNegative(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4})
	p.sync()
	s := ask(t, c, postRequest(8)+"abcd")
	p.want(`1: "abcd"`)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	p.sync()
	wrote := make(chan error, 1)
	go func() { _, err := io.WriteString(s, "efgh"); wrote <- err }()
	_ = p.WriteWindowUpdate(1, 4)
	p.sync()
	_ = p.WriteWindowUpdate(1, 4)
	p.want(`1: "efgh" end`)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// What an upstream sends of streams that were closed is credited, so that it holds up no other.
func TestTheConnectionsWindowIsNotUsedUp(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	p.sync()
	s := ask(t, c, getRequest)
	p.want("1: :method")
	p.headers(1, false, ":status", "200")
	p.sync()
	_ = s.Close()
	p.want("1: reset CANCEL")
	first := p.credit.Load()
	piece := make([]byte, 16<<10)
	for range connectionWindow/4/len(piece) + 1 {
		if err := p.WriteData(1, false, piece); err != nil {
			t.Fatal(err)
		}
	}
	p.sync()
	if got := p.credit.Load() - first; got < connectionWindow/4 {
		t.Errorf("%d bytes were credited", got)
	}
}

// A real server, with many requests at once.
func TestManyRequestsToAnUpstream(t *testing.T) {
	addr := realUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		_, _ = io.WriteString(w, r.URL.Path)
	})
	c := dialReal(t, addr)
	done := make(chan string, 500)
	for i := range cap(done) {
		go func() {
			body := strings.Repeat("x", i*97)
			s := opened(c)
			_ = s.SetDeadline(time.Now().Add(time.Minute))
			_, err := io.WriteString(s, postRequest(len(body))+body)
			if err != nil {
				done <- err.Error()
				return
			}
			_, got, err := respondedWith(s, "POST")
			s.Finish(time.Second, func() {})
			if err != nil || got != body+"/" {
				done <- "wrong"
				return
			}
			done <- ""
		}()
	}
	for range cap(done) {
		if why := <-done; why != "" {
			t.Error(why)
		}
	}
}

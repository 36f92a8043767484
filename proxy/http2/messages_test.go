package http2

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestARequestReadsAsHTTP1(t *testing.T) {
	for name, tc := range map[string]struct {
		fields []string
		want   string
	}{
		"plain":                       {getFields, "GET /a?b HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		"in order":                    {with("x-b", "2", "accept", "1", "x-b", "3", "te", "trailers"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nX-B: 2\r\nAccept: 1\r\nX-B: 3\r\nTe: trailers\r\n\r\n"},
		"the authority as host, too":  {with("host", "h.test"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		"another host, to be refused": {with("host", "other"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nHost: other\r\n\r\n"},
		"only a host":                 {[]string{":method", "GET", ":scheme", "https", ":path", "/", "host", "x"}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"crumbs of a cookie":          {with("cookie", "a=1", "x", "y", "cookie", "b=2"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nX: y\r\nCookie: a=1; b=2\r\n\r\n"},
		"an empty body":               {with("content-length", "0"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n"},
		"OPTIONS":                     {[]string{":method", "OPTIONS", ":scheme", "http", ":authority", "h", ":path", "*"}, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"},
		"CONNECT":                     {[]string{":method", "CONNECT", ":authority", "h:1"}, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n"},
		"lengths that differ":         {with("content-length", "5", "content-length", "6"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nContent-Length: 5\r\nContent-Length: 6\r\nContent-Length: none\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialFrames(t, options(echo))
			p.begin(true, tc.fields...)
			if got, want := p.want("1: \""), fmt.Sprintf("1: %q end", tc.want); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// What RFC 9113 calls malformed, and whatever could end a line, ends the stream alone.
func TestAMalformedRequestIsReset(t *testing.T) {
	served := atomic.Int64{}
	for name, fields := range map[string][]string{
		"no method":             {":scheme", "http", ":authority", "a", ":path", "/"},
		"no path":               {":method", "GET", ":scheme", "http", ":authority", "a"},
		"no scheme":             {":method", "GET", ":authority", "a", ":path", "/"},
		"an empty path":         {":method", "GET", ":scheme", "http", ":authority", "a", ":path", ""},
		"no slash":              {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "a"},
		"a star for GET":        {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "*"},
		"another scheme":        {":method", "GET", ":scheme", "ftp", ":authority", "a", ":path", "/"},
		"two paths":             {":method", "GET", ":scheme", "http", ":path", "/", ":path", "/"},
		"pseudo behind regular": {":method", "GET", ":scheme", "http", "x", "y", ":path", "/"},
		"unknown pseudo":        with(":status", "200"),
		"upper case":            with("X-A", "b"),
		"connection":            with("connection", "close"),
		"transfer coding":       with("transfer-encoding", "chunked"),
		"upgrade":               with("upgrade", "x"),
		"te":                    with("te", "gzip"),
		"space in a name":       with("x a", "b"),
		"colon in a name":       with("x:a", "b"),
		"no name":               with("", "b"),
		"LF in a value":         with("x", "a\nb: c"),
		"CR in a value":         with("x", "a\rb"),
		"NUL in a value":        with("x", "a\x00"),
		"LF in the path":        {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/\r\nX: y"},
		"space in the path":     {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/ HTTP/1.1"},
		"LF in the method":      {":method", "GET\n", ":scheme", "http", ":authority", "a", ":path", "/"},
		"LF in the authority":   {":method", "GET", ":scheme", "http", ":authority", "a\n", ":path", "/"},
		"two hosts":             with("host", "a", "host", "b"),
		"CONNECT with a path":   {":method", "CONNECT", ":authority", "a", ":path", "/", ":scheme", "http"},
		"a protocol without it": {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/", ":protocol", "websocket"},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialFrames(t, options(func(s *textStream) { served.Add(1); echo(s) }))
			p.begin(true, fields...)
			p.want("1: reset PROTOCOL_ERROR")
			before := served.Load()
			p.begin(true, getFields...)
			p.want("3: \"")
			if served.Load() != before+1 || before != 0 && before > 100 {
				t.Error("a malformed request was served")
			}
		})
	}
	if n := served.Load(); n != 28 {
		t.Errorf("%d were served, want one in each case", n)
	}
}

func TestAResponseMayComeInAnyPieces(t *testing.T) {
	for _, tc := range []struct{ response, headers, end string }{
		{"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nConnection: close\r\nX-A: 1\r\nX-A: 2\r\n\r\nhello", "1: :status=201 content-length=5 x-a=1 x-a=2", "end"},
		{"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: t\r\n\r\n", "1: :status=103 link=</x>", "1: x-t=t end"},
		{"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n", "1: :status=204 date=now end", ""},
	} {
		for _, step := range []int{1, 3, 1000} {
			done := make(chan struct{})
			p := dialFrames(t, options(func(s *textStream) {
				defer close(done)
				if _, err := readHead(s); err != nil {
					return
				}
				for b := []byte(tc.response); len(b) > 0; {
					n := min(step, len(b))
					if _, err := s.Write(b[:n]); err != nil {
						t.Errorf("%q by %d: %v", tc.response, step, err)
					}
					b = b[n:]
				}
				if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("after the response: %d, %v", n, err)
				}
				if _, err := s.Write([]byte("more")); err == nil {
					t.Error("it took bytes after the response")
				}
			}))
			p.begin(true, getFields...)
			p.want(tc.headers)
			if strings.HasPrefix(tc.end, "1:") {
				p.want("1: :status=200")
				p.want(tc.end)
			}
			<-done // before the connection ends
		}
	}
}

func TestAResponseThatIsCutDoesNotLookWhole(t *testing.T) {
	for _, response := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
		p := dialFrames(t, options(func(s *textStream) { _, _ = io.WriteString(s, response) }))
		p.begin(true, getFields...)
		p.want("1: reset INTERNAL_ERROR")
	}
}

// A request's body that does not end as announced is never read to its end, and its client is gone.
func TestABodyThatIsCutOffIsBroken(t *testing.T) {
	const length = "content-length"
	for name, tc := range map[string]struct {
		fields []string
		send   func(p *peer)
		whole  bool
	}{
		"whole":                      {[]string{length, "5"}, func(p *peer) { _ = p.WriteData(1, true, []byte("12345")) }, true},
		"whole, without a length":    {nil, func(p *peer) { _ = p.WriteData(1, true, []byte("12345")) }, true},
		"too little":                 {[]string{length, "6"}, func(p *peer) { _ = p.WriteData(1, true, []byte("12345")) }, false},
		"too little, in two":         {[]string{length, "6"}, func(p *peer) { _ = p.WriteData(1, false, []byte("12345")); _ = p.WriteData(1, true, nil) }, false},
		"too little before trailers": {[]string{length, "6"}, func(p *peer) { _ = p.WriteData(1, false, []byte("12345")); p.headers(1, true, "x-t", "1") }, false},
		"too much":                   {[]string{length, "4"}, func(p *peer) { _ = p.WriteData(1, true, []byte("12345")) }, false},
		"a reset":                    {[]string{length, "6"}, func(p *peer) { _ = p.WriteData(1, false, []byte("12345")); _ = p.WriteRSTStream(1, 0) }, false},
		"a reset, without a length":  {nil, func(p *peer) { _ = p.WriteData(1, false, []byte("12345")); _ = p.WriteRSTStream(1, 8) }, false},
		"a reset of all of it":       {[]string{length, "5"}, func(p *peer) { _ = p.WriteData(1, false, []byte("12345")); _ = p.WriteRSTStream(1, 0) }, false},
		"the connection's end":       {nil, func(p *peer) { _ = p.WriteData(1, false, []byte("12345")); _ = p.nc.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checked := make(chan struct{})
				p := dialFrames(t, options(func(s *textStream) {
					defer close(checked)
					_, _ = readHead(s)
					if !tc.whole {
						<-s.Done()
					}
					_ = s.SetReadDeadline(time.Now().Add(time.Minute))
					var err error
					for n := 1; n > 0 && err == nil; {
						n, err = s.ReadBody(make([]byte, 100))
					}
					if (err == io.EOF) != tc.whole || s.BodyRead() != tc.whole || s.ClientGone() == tc.whole {
						t.Errorf("read to %v; whole %v, client gone %v", err, s.BodyRead(), s.ClientGone())
					}
				}))
				p.begin(false, with(tc.fields...)...)
				tc.send(p)
				<-checked
			})
		})
	}
}

// What comes behind the end of a request is no part of it, and ends its stream alone.
func TestFramesBehindTheEndOfARequestResetItsStream(t *testing.T) {
	for name, send := range map[string]func(p *peer){
		"DATA":     func(p *peer) { _ = p.WriteData(1, true, []byte("more")) },
		"trailers": func(p *peer) { p.headers(1, true, "x-t", "1") },
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 1)
			p := dialFrames(t, options(func(s *textStream) {
				_, _ = readHead(s)
				if s.ID() > 1 {
					_, _ = io.WriteString(s, "HTTP/1.1 204 No Content\r\n\r\n")
					return
				}
				<-s.Done()
				b := make([]byte, 100)
				n, err := s.ReadBody(b)
				got <- fmt.Sprintf("%q %v %v", b[:n], err != nil, s.Trailers())
			}))
			p.begin(false, getFields...) // without a length
			_ = p.WriteData(1, true, []byte("all"))
			send(p)
			p.want("1: reset STREAM_CLOSED")
			if body := <-got; body != `"" true []` {
				t.Error(body)
			}
			p.begin(true, getFields...)
			p.want("3: :status=204")
		})
	}
}

// A body that is declared to be empty ends in time, or its stream is reset.
func TestABodyThatIsDeclaredEmptyEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dialFrames(t, options(echo))
		p.begin(false, with("content-length", "0")...)
		p.begin(false, with("content-length", "0")...)
		time.Sleep(emptyWithin - time.Second)
		_ = p.WriteData(1, true, nil)
		p.want("1: \"")
		time.Sleep(2 * time.Second)
		p.mu.Lock()
		reset := slices.Contains(p.seen, "3: reset PROTOCOL_ERROR")
		p.mu.Unlock()
		if !reset {
			t.Error("it was not reset in time")
		}
		p.begin(true, getFields...)
		p.want("5: \"")
	})
}

package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestHTTP2ClientIsRetried(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	res, body := p.Fetch(peers.HTTP2Client(t, nil), "GET", "/a?b=c", nil)
	if res.ProtoMajor != 2 || res.StatusCode != 200 || body != "ok" || res.Header.Get("X-Retryproxy-Attempts") != "2" {
		t.Errorf("%s %d %q %v", res.Proto, res.StatusCode, body, res.Header)
	}
	if len(res.Header["Date"]) != 1 || res.Header["Content-Type"] != nil {
		t.Errorf("fields that the upstream did not send: %v", res.Header)
	}
	for n := range 2 {
		if headers := u.Head(n); !strings.HasPrefix(headers, "GET /a?b=c HTTP/1.1\r\nHost: "+p.Addr+"\r\n") ||
			!strings.Contains(headers, "X-Forwarded-For: 127.0.0.1\r\n") || !strings.Contains(headers, "X-Forwarded-Proto: http\r\n") ||
			strings.Contains(headers, "Transfer-Encoding") || strings.Contains(headers, "Content-Length") {
			t.Errorf("send %d: %q", n, headers)
		}
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeRecovered {
		t.Errorf("outcome %v", o)
	}
}

func TestHTTP2ClientOverTLS(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		a.ClientsOverTLS(t, c, false)
	})
	res, err := peers.HTTP2Client(t, a.Client()).Get("https://" + p.Addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); res.ProtoMajor != 2 || string(b) != "ok" {
		t.Errorf("%s %q", res.Proto, b)
	}
	if !strings.Contains(u.Head(0), "X-Forwarded-Proto: https\r\n") {
		t.Errorf("%q", u.Head(0))
	}
}

// Without streams allowed, ALPN does not offer HTTP/2 and the preface is refused as ever.
func TestHTTP2CanBeTurnedOff(t *testing.T) {
	a := peers.NewAuthority(t)
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	conf := a.Client()
	conf.NextProtos = []string{"h2", "http/1.1"}
	c := p.DialTLS(conf)
	if proto := c.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; proto != "http/1.1" {
		t.Errorf("agreed on %q", proto)
	}
	c.Send(http2.ClientPreface).Want(505, "*")
}

// HTTP/2 begins with a connection's first byte or not at all: after a request it could have been
// smuggled.
func TestPrefaceBehindARequestIsRefused(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	c := p.Dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
	c.Send(http2.ClientPreface).Want(505, "*")
}

// The preface may come byte by byte.
func TestPrefaceInPieces(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	tr := peers.HTTP2Client(t, nil).Transport.(*http.Transport)
	tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
		nc, err := net.Dial("tcp", p.Addr)
		return &dribble{Conn: nc}, err
	}
	res, body := p.Fetch(&http.Client{Transport: tr}, "GET", "/", nil)
	if res.StatusCode != 200 || body != "ok" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// dribble writes the first bytes one at a time.
type dribble struct {
	net.Conn
	wrote int
}

func (d *dribble) Write(p []byte) (int, error) {
	for i := range p {
		if d.wrote > 60 {
			n, err := d.Conn.Write(p[i:])
			return i + n, err
		}
		if _, err := d.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
		d.wrote++
		time.Sleep(time.Millisecond)
	}
	return len(p), nil
}

// echoUpstream answers every request with its body, chunked, and with the trailers it came with.
func echoUpstream(t testing.TB) *peers.Upstream {
	return peers.StartUpstream(t, func(c *peers.Conn) {
		for {
			req, err := http.ReadRequest(c.Reader)
			if err != nil {
				return
			}
			c.Up.Note(fmt.Sprint(req.ContentLength, req.Header))
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for b := range slicesOf(body, 50_000) {
				c.Say("%x\r\n%s\r\n", len(b), b)
			}
			c.Say("0\r\nX-Got: %s\r\n\r\n", req.Trailer.Get("X-Sum"))
		}
	})
}

func slicesOf(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			k := min(n, len(b))
			if !yield(b[:k]) {
				return
			}
			b = b[k:]
		}
	}
}

func TestHTTP2BodiesAndTrailersBothWays(t *testing.T) {
	p := proxytest.Start(t, echoUpstream(t), func(c *proxy.Config) { peers.SpeakHTTP2(c); c.Default.RetryBufferBytes = 64 << 10 })
	client := peers.HTTP2Client(t, nil)
	for _, size := range []int{1, 5000, 70_000, 3 << 20} {
		for _, tc := range []struct{ known, trailers bool }{{true, false}, {true, true}, {false, true}} {
			t.Run(fmt.Sprintf("%d bytes, length known %v, trailers %v", size, tc.known, tc.trailers), func(t *testing.T) {
				sent := bytes.Repeat([]byte("0123456789"), (size+9)/10)[:size]
				var body io.Reader = bytes.NewReader(sent)
				if !tc.known {
					body = io.MultiReader(body)
				}
				req, _ := http.NewRequest("POST", "http://"+p.Addr+"/", body)
				if tc.trailers {
					req.Trailer = http.Header{"X-Sum": {"42"}}
				}
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				got, err := io.ReadAll(res.Body)
				if err != nil || !bytes.Equal(got, sent) {
					t.Fatalf("%d bytes came back (%v), want %d", len(got), err, size)
				}
				want := ""
				if tc.trailers {
					want = "42"
				}
				if v := res.Trailer.Get("X-Got"); v != want {
					t.Errorf("trailer %q, want %q", v, want)
				}
			})
		}
	}
}

func TestHTTP2ResponsesWithoutBody(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 9\r\n\r\n"))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	client := peers.HTTP2Client(t, nil)
	if res, body := p.Fetch(client, "GET", "/", nil); res.StatusCode != 204 || body != "" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if res, body := p.Fetch(client, "HEAD", "/", nil); res.ContentLength != 77 || body != "" {
		t.Errorf("%d %q", res.ContentLength, body)
	}
	hints := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code == 103 && h.Get("Link") == "</x>" {
			hints++
		}
		return nil
	}})
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+p.Addr+"/", nil)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 304 || res.Header.Get("ETag") != `"a"` || res.Header.Get("Link") != "" || hints != 1 {
		t.Errorf("%d %v after %d hints", res.StatusCode, res.Header, hints)
	}
}

// The head goes out before the body's end, and so does each piece.
func TestHTTP2ResponseStreams(t *testing.T) {
	next := make(chan string)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for piece := range next {
			c.Say("%x\r\n%s\r\n", len(piece), piece)
		}
		c.Say("0\r\n\r\n")
	})
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	res, err := peers.HTTP2Client(t, nil).Get("http://" + p.Addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, piece := range []string{"one", "two"} {
		next <- piece
		got := make([]byte, 3)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != piece {
			t.Fatalf("%q %v, want %q", got, err, piece)
		}
	}
	close(next)
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
}

// A response cut off upstream is a stream error for the client, and the
// connection goes on.
func TestHTTP2CutResponseIsAStreamError(t *testing.T) {
	for name, cut := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				c.Head()
				if c.N == 1 {
					c.Say("%s", cut)
				} else {
					c.Say(peers.OK200)
				}
			})
			p := proxytest.Start(t, u, peers.SpeakHTTP2)
			client := peers.HTTP2Client(t, nil)
			res, err := client.Get("http://" + p.Addr + "/")
			if err == nil {
				_, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
			if err == nil {
				t.Error("the response looked whole")
			}
			if o := p.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
				t.Errorf("outcome %v", o)
			}
			if _, body := p.Fetch(client, "GET", "/", nil); body != "ok" {
				t.Errorf("afterwards %q", body)
			}
			if n := p.Stats().Connections; n != 1 {
				t.Errorf("%d connections of the client, want 1", n)
			}
		})
	}
}

// A client that resets its stream ends the attempt, not its other streams.
func TestHTTP2ResetEndsTheAttempt(t *testing.T) {
	ended := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "GET /quick") {
				c.Say(peers.OK200)
				continue
			}
			_, _ = c.Reader.ReadByte() // until the proxy hangs up
			close(ended)
			return
		}
	})
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	client := peers.HTTP2Client(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+p.Addr+"/slow", nil)
		_, err := client.Do(req)
		gone <- err
	}()
	peers.Soon(t, "the request is upstream", func() bool { return u.Sends() == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the attempt goes on")
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
	if _, body := p.Fetch(client, "GET", "/quick", nil); body != "ok" {
		t.Errorf("%q", body)
	}
}

// A client that leaves ends the wait before a retry.
func TestHTTP2ResetEndsTheWait(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script("HTTP/1.1 503 Busy\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n", peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+p.Addr+"/", nil)
	done := make(chan struct{})
	go func() { defer close(done); _, _ = peers.HTTP2Client(t, nil).Do(req) }()
	peers.Soon(t, "the wait began", func() bool { defer p.Seen.Lock()(); return p.Seen.Waiting == 1 })
	cancel()
	<-done
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
}

func TestHTTP2ManyStreamsAtOnce(t *testing.T) {
	const streams = 60
	var mu sync.Mutex
	arrived := 0
	release := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			mu.Lock()
			if arrived++; arrived == streams {
				close(release)
			}
			mu.Unlock()
			<-release
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	p.GetAtOnce(peers.HTTP2Client(t, nil), streams)
	if n := p.Stats().Connections; n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestHTTP2HeaderLimits(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.SpeakHTTP2(c); c.Limits.HeaderBytes, c.Limits.Headers = 8<<10, 20 })
	client := peers.HTTP2Client(t, nil)
	for name, fill := range map[string]func(http.Header){
		"bytes": func(h http.Header) { h.Set("X-Large", strings.Repeat("x", 8<<10)) },
		"fields": func(h http.Header) {
			for i := range 30 {
				h.Set(fmt.Sprintf("X-%d", i), "v")
			}
		},
	} {
		req, _ := http.NewRequest("GET", "http://"+p.Addr+"/", nil)
		fill(req.Header)
		res, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 431 {
			t.Errorf("%s: %d, want 431", name, res.StatusCode)
		}
	}
	if n := u.Sends(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestHTTP2RequestThatIsNotForwarded(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	req, _ := http.NewRequest("CONNECT", "http://"+p.Addr, nil)
	res, err := peers.HTTP2Client(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode < 400 || u.Sends() != 0 {
		t.Errorf("CONNECT: %d, %d sends", res.StatusCode, u.Sends())
	}
}

// A drain tells the client to go away, ends waits before retries, and lets
// what runs finish.
func TestHTTP2Drain(t *testing.T) {
	finish := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "GET /waits") {
				c.Say("HTTP/1.1 503 Busy\r\nRetry-After: 3600\r\nContent-Length: 4\r\n\r\nbusy")
				continue
			}
			<-finish
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		c.DrainTimeout, c.Default.RequestTimeout = time.Minute, 2*time.Hour
	})
	client := peers.HTTP2Client(t, nil)
	responses := map[string]chan string{}
	for _, path := range []string{"/runs", "/waits"} {
		responses[path] = make(chan string, 1)
		go func() {
			res, err := client.Get("http://" + p.Addr + path)
			if err != nil {
				responses[path] <- err.Error()
				return
			}
			b, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			responses[path] <- fmt.Sprint(res.StatusCode, " ", string(b))
		}()
	}
	peers.Soon(t, "one waits and one runs", func() bool { defer p.Seen.Lock()(); return p.Seen.Waiting == 1 && u.Sends() == 2 })
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	if got := <-responses["/waits"]; got != "503 busy" {
		t.Errorf("the one that waited got %q", got)
	}
	close(finish)
	if got := <-responses["/runs"]; got != "200 ok" {
		t.Errorf("the one that ran got %q", got)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

func TestHTTP2IdleClientDoesNotDelayADrain(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		c.DrainTimeout, c.ClientIdleTimeout = time.Minute, time.Hour
	})
	p.Fetch(peers.HTTP2Client(t, nil), "GET", "/", nil)
	if err := p.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client that connected before the drain and begins HTTP/2 in it is served
// and then told to go away. It sends its request with the preface: a client that has read GOAWAY sends none.
func TestHTTP2BegunDuringADrain(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		c.DrainTimeout, c.ClientIdleTimeout = time.Minute, time.Hour
	})
	c := p.Dial()
	peers.Soon(t, "it is connected", func() bool { return p.Stats().Connections == 1 })
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	peers.Soon(t, "the drain began", func() bool { return p.Stats().Draining })
	var begin bytes.Buffer
	begin.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&begin, c.Reader)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	peers.WriteHeaders(t, f, 1, "GET", true)
	c.Send(begin.String())
	var status, body string
	away := false
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			break // the connection ended
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			status = frame.PseudoValue("status")
		case *http2.DataFrame:
			body += string(frame.Data())
		case *http2.GoAwayFrame:
			away = away || frame.ErrCode == http2.ErrCodeNo
		}
	}
	if status != "200" || body != "ok" || !away {
		t.Errorf("status %q, body %q, told to go away %v", status, body, away)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// A client that opens no window for its response is cut off; other clients are not affected.
func TestHTTP2ClientThatReadsNothingIsCutOff(t *testing.T) {
	large := strings.Repeat("x", 8<<20)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "GET /quick") {
				c.Say(peers.OK200)
				continue
			}
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(large), large)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.SpeakHTTP2(c); c.WriteTimeout = 100 * time.Millisecond })
	client := peers.HTTP2Client(t, nil)
	res, err := client.Get("http://" + p.Addr + "/large")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
	if _, body := p.Fetch(client, "GET", "/quick", nil); body != "ok" {
		t.Errorf("%q", body)
	}
	if b, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%d bytes looked whole", len(b))
	}
}

// A response that comes before the body's end reaches the client, and ends the stream.
func TestHTTP2ResponseBeforeTheBodysEnd(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
		_, _ = io.Copy(io.Discard, c.Reader)
	})
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	r, w := io.Pipe()
	defer w.Close()
	req, _ := http.NewRequest("POST", "http://"+p.Addr+"/", r)
	res, err := peers.HTTP2Client(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); res.StatusCode != 403 || string(b) != "no" {
		t.Errorf("%d %q", res.StatusCode, b)
	}
}

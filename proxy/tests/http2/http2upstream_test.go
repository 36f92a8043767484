package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

func TestHTTP2UpstreamGetsTheRequestAsItCame(t *testing.T) {
	seen := make(chan *http.Request, 1)
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		seen <- r
		w.Header().Set("X-Answer", "1")
		_, _ = io.WriteString(w, "ok")
	})
	p := proxytest.StartTo(t, "h2c://"+addr, nil)
	c := p.Dial()
	for _, target := range []string{"/a%2Fb/../c?d=e&f", "//two//slashes?", "/x?a=%zz", "*"} {
		method := "POST"
		if target == "*" {
			method = "OPTIONS"
		}
		c.Send(method + " " + target + " HTTP/1.1\r\nHost: app.test\r\nX-A: 1\r\nX-A: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 4\r\n\r\nbody")
		res := c.Want(200, "ok")
		r := <-seen
		body, _ := io.ReadAll(r.Body)
		if r.ProtoMajor != 2 || r.RequestURI != target || r.Host != "app.test" || string(body) != "body" || r.ContentLength != 4 {
			t.Errorf("%s: the upstream got %s %s of %s, %d bytes %q", target, r.Proto, r.RequestURI, r.Host, r.ContentLength, body)
		}
		if v := r.Header["X-A"]; len(v) != 2 || r.Header["X-Hop"] != nil || r.Header["User-Agent"] != nil || r.Header["Accept-Encoding"] != nil || r.Header.Get("X-Retryproxy-Attempt") != "1" {
			t.Errorf("%s: fields %v", target, r.Header)
		}
		if res.Header.Get("X-Answer") != "1" {
			t.Errorf("%s: answer %v", target, res.Header)
		}
	}
	if st := p.Stats().Upstreams[0].Pool; st.Dials != 1 || st.Reuses != 3 {
		t.Errorf("%+v, want one dial and three reuses", st)
	}
}

func TestHTTPSUpstreamSpeaksWhatALPNChooses(t *testing.T) {
	for _, tc := range []struct {
		scheme string
		both   bool
		want   string
	}{{"https", true, "HTTP/2.0"}, {"https", false, "HTTP/2.0"}, {"h2", true, "HTTP/2.0"}} {
		port, trust := peers.SecureHTTP2Server(t, tc.both, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
		p := proxytest.StartTo(t, tc.scheme+"://secure.test:"+port, trust)
		p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, tc.want)
	}
}

func TestH2UpstreamThatOffersNoHTTP2CannotBeReached(t *testing.T) {
	p, _ := proxytest.SecureUpstream(t, peers.Script(peers.OK200), nil, upstream.TLSFiles{}, func(c *proxy.Config) {
		target, err := upstream.ParseTarget("h2://" + c.Default.Upstream.Address)
		if err != nil {
			t.Fatal(err)
		}
		target.Resolve = c.Default.Upstream.Resolve
		conf := c.Default.Upstream.TLS.Clone()
		conf.NextProtos = target.TLS.NextProtos
		target.TLS = conf
		c.Default.Upstream, c.Default.Policy.MaxRetries = target, 0
	})
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(502, "*")
}

// An upgrade needs HTTP/1.1, so it gets a connection of its own.
func TestUpgradeToAnUpstreamOfBothProtocols(t *testing.T) {
	port, trust := peers.SecureHTTP2Server(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		nc, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.CopyN(nc, rw, 5)
	})
	p := proxytest.StartTo(t, "https://secure.test:"+port, trust)
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "HTTP/2.0")
	c := p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello")
	if res, err := http.ReadResponse(c.Reader, nil); err != nil || res.StatusCode != 101 {
		t.Fatal(res, err)
	}
	if got, err := c.Rest(); err != nil || got != "hello" {
		t.Errorf("%q %v", got, err)
	}
}

func TestHTTP2BothSidesBodiesAndTrailers(t *testing.T) {
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Got")
		w.WriteHeader(200)
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("X-Got", r.Trailer.Get("X-Sum"))
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
	})
	for _, two := range []bool{false, true} {
		p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) { peers.SpeakHTTP2(c); c.Default.RetryBufferBytes = 64 << 10 })
		client := peers.HTTP2Client(t, nil)
		if !two {
			client = &http.Client{Transport: &http.Transport{}}
			t.Cleanup(client.CloseIdleConnections)
		}
		for _, size := range []int{0, 1, 70_000, 3 << 20} {
			sent := bytes.Repeat([]byte("x"), size)
			req, _ := http.NewRequest("POST", "http://"+p.Addr+"/", io.MultiReader(bytes.NewReader(sent)))
			req.Trailer = http.Header{"X-Sum": {"42"}}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || !bytes.Equal(got, sent) || res.Trailer.Get("X-Got") != "42" || res.Trailer.Get("X-Late") != "late" {
				t.Errorf("HTTP/2 client %v: %d bytes (%v) and trailers %v, want %d bytes", two, len(got), err, res.Trailer, size)
			}
		}
	}
}

func TestHTTP2UpstreamInformationalAndBodyless(t *testing.T) {
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hints":
			w.Header().Set("Link", "x")
			w.WriteHeader(103)
			w.WriteHeader(204)
		case "/head":
			w.Header().Set("Content-Length", "77")
		case "/304":
			w.Header().Set("ETag", `"a"`)
			w.WriteHeader(304)
		}
	})
	p := proxytest.StartTo(t, "h2c://"+addr, nil)
	c := p.Dial()
	c.Send("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n")
	if res, err := http.ReadResponse(c.Reader, nil); err != nil || res.StatusCode != 103 || res.Header.Get("Link") != "x" {
		t.Fatal(res, err)
	}
	c.Want(204, "")
	c.Send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n")
	if res, _, err := c.Response("HEAD"); err != nil || res.ContentLength != 77 {
		t.Error(res, err)
	}
	c.Send("GET /304 HTTP/1.1\r\nHost: a\r\n\r\n")
	if res := c.Want(304, ""); res.Header.Get("ETag") != `"a"` {
		t.Error(res)
	}
}

// One dial serves all requests that come while it is in flight.
func TestHTTP2UpstreamIsDialledOnceForMany(t *testing.T) {
	const many = 50
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") })
	dialing := make(chan struct{})
	p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) {
		c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			<-dialing
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		c.Default.DialTimeout = time.Minute
	})
	var all sync.WaitGroup
	for range many {
		c := p.Dial().Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		all.Go(func() { c.Want(200, "ok") })
	}
	peers.Soon(t, "all requests began", func() bool { defer p.Seen.Lock()(); return p.Seen.Began == many })
	close(dialing)
	all.Wait()
	if n := p.Stats().Upstreams[0].Pool.Dials; n != 1 {
		t.Errorf("%d dials, want 1", n)
	}
	peers.Soon(t, "the connection is idle", func() bool {
		st := p.Stats().Upstreams[0].Pool
		return st.Streams == 0 && st.Idle == 1 && st.Active == 0
	})
}

// framer is an HTTP/2 connection of an upstream that answers frame by frame.
type framer struct {
	*http2.Framer
	c *peers.Conn
}

// eachFrame serves HTTP/2 without net/http: handle is called for each frame of a connection.
func eachFrame(handle func(f *framer, frame http2.Frame)) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		if _, err := c.Reader.Discard(len(http2.ClientPreface)); err != nil {
			return
		}
		f := &framer{http2.NewFramer(c.Conn, c.Reader), c}
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		for frame, err := f.ReadFrame(); err == nil; frame, err = f.ReadFrame() {
			handle(f, frame)
		}
	}
}

// frames serves HTTP/2 without net/http. response is called for every request
// that is complete up to its head.
func frames(response func(f *framer, id uint32)) func(c *peers.Conn) {
	return eachFrame(func(f *framer, frame http2.Frame) {
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = f.WritePing(true, frame.Data)
		case *http2.MetaHeadersFrame:
			f.c.Up.Note(fmt.Sprint(frame.Fields))
			response(f, frame.StreamID)
		}
	})
}

// respond answers a stream with a status and a body.
func (f *framer) respond(id uint32, status, body string, fields ...string) {
	f.writeResponse(id, true, status, body, fields)
}

// respondOpen is respond that leaves the stream open.
func (f *framer) respondOpen(id uint32, status, body string, fields ...string) {
	f.writeResponse(id, false, status, body, fields)
}

func (f *framer) writeResponse(id uint32, end bool, status, body string, fields []string) {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true})
	_ = f.WriteData(id, end, []byte(body))
}

func TestHTTP2ResponseHeadersThatAreTooLarge(t *testing.T) {
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		for i := range 100 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("a", 1<<10))
		}
	})
	p := proxytest.StartTo(t, "h2c://"+addr, nil)
	p.Dial().Send(peers.Get("/")).Want(502, "*")
	if p.Seen.Outcome(t, 0); fmt.Sprint(p.Seen.Retries) != "[response_headers_too_large response_headers_too_large response_headers_too_large]" {
		t.Errorf("retries for %v", p.Seen.Retries)
	}
}

// A refused stream was surely not processed: even a POST is sent again.
func TestRefusedStreamIsRetriedWhateverTheMethod(t *testing.T) {
	n := 0
	u := peers.StartUpstream(t, frames(func(f *framer, id uint32) {
		if n++; n == 1 {
			_ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			return
		}
		f.respond(id, "200", "ok")
	}))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
	p.Dial().Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").Want(200, "ok")
	p.Seen.Outcome(t, 0)
	if p.Seen.Classes[0] != policy.NotSent || p.Seen.Retries[0] != policy.ReasonRefusedStream || u.Sends() != 2 || u.Connections() != 1 {
		t.Errorf("classes %v, retries %v, %d sends on %d connections", p.Seen.Classes, p.Seen.Retries, u.Sends(), u.Connections())
	}
}

// Another reset may have come after the work was done: a POST is not retried, a GET is.
func TestResetStreamMayHaveBeenProcessed(t *testing.T) {
	u := peers.StartUpstream(t, frames(func(f *framer, id uint32) {
		if f.c.Up.Sends()%2 == 1 {
			_ = f.WriteRSTStream(id, http2.ErrCodeInternal)
			return
		}
		f.respond(id, "200", "ok")
	}))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
	c := p.Dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").Want(502, "*")
	if o := p.Seen.Outcome(t, 1); o != policy.GaveUp(policy.ReasonNotIdempotent) || u.Sends() != 3 {
		t.Errorf("outcome %v after %d sends", o, u.Sends())
	}
}

// What is beyond the last stream of a GOAWAY was not processed; what is not may
// have been. After either the connection is not used again.
func TestGoAway(t *testing.T) {
	for name, tc := range map[string]struct {
		code   http2.ErrCode
		warm   bool // the connection was used before
		last   func(id uint32) uint32
		status int
		sends  int
	}{
		"beyond the last stream":                    {http2.ErrCodeNo, true, func(id uint32) uint32 { return id - 2 }, 200, 3},
		"beyond the last stream, with an error":     {http2.ErrCodeEnhanceYourCalm, true, func(id uint32) uint32 { return id - 2 }, 200, 3},
		"the first stream, not processed":           {http2.ErrCodeNo, false, func(uint32) uint32 { return 0 }, 200, 2},
		"the first, not processed, with an error":   {http2.ErrCodeInternal, false, func(uint32) uint32 { return 0 }, 200, 2},
		"maybe processed when the connection ended": {http2.ErrCodeNo, true, func(id uint32) uint32 { return id }, 502, 2},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, frames(func(f *framer, id uint32) {
				switch {
				case f.c.N == 2 || tc.warm && id == 1:
					f.respond(id, "200", "ok")
				default:
					_ = f.WriteGoAway(tc.last(id), tc.code, nil)
					if tc.status != 200 {
						f.c.Conn.Close()
					}
				}
			}))
			p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
			c := p.Dial()
			if tc.warm {
				c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").Want(200, "ok")
			}
			c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").Want(tc.status, "*")
			if u.Sends() != tc.sends {
				t.Errorf("%d sends, want %d", u.Sends(), tc.sends)
			}
		})
	}
}

// A hedge that was certainly not processed costs nothing. If its connection went away, it goes over another one; if
// the upstream refuses it, the first attempt goes on.
func TestAHedgeThatWasNotProcessedCostsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(f *framer, first, hedge uint32)
		body   string
		hedges int
		tokens float64
	}{
		"the connection goes away": {func(f *framer, first, _ uint32) { _ = f.WriteGoAway(first, http2.ErrCodeNo, nil) }, "fresh", 1, 4},
		"the stream is refused":    {func(f *framer, _, hedge uint32) { _ = f.WriteRSTStream(hedge, http2.ErrCodeRefusedStream) }, "first", 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			var first uint32
			evaluated := make(chan struct{})
			u := peers.StartUpstream(t, frames(func(f *framer, id uint32) {
				switch {
				case f.c.N == 2:
					f.respond(id, "200", "fresh")
				case id == 1:
					f.respond(id, "200", "warm")
				case first == 0:
					first = id
				default:
					tc.end(f, first, id)
					<-evaluated
					f.respond(first, "200", "first")
				}
			}))
			p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), func(c *proxy.Config) {
				peers.HedgedOnce(t)(c)
				c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
			})
			c := p.Dial()
			c.Send(peers.Get("/")).Want(200, "warm")
			c.Send(strings.Replace(peers.Post("abc"), "POST", "PUT", 1))
			if tc.hedges == 0 {
				peers.Soon(t, "the hedge has ended", func() bool {
					return u.Sends() == 3 && p.Stats().Upstreams[0].BudgetTokens == tc.tokens
				})
				close(evaluated)
			}
			c.Want(200, tc.body)
			if tc.hedges > 0 {
				close(evaluated)
			}
			p.Seen.Outcome(t, 1)
			if tokens := p.Stats().Upstreams[0].BudgetTokens; p.Seen.HedgesSent != tc.hedges || tokens != tc.tokens {
				t.Errorf("%d hedges, %v tokens", p.Seen.HedgesSent, tokens)
			}
		})
	}
}

// A hedge wins with a response that comes before the end of its body, of which the upstream takes no more.
func TestAHedgeIsAnsweredBeforeItsBodysEnd(t *testing.T) {
	first := true
	u := peers.StartUpstream(t, frames(func(f *framer, id uint32) {
		if first {
			first = false
			_ = f.WriteWindowUpdate(0, 1<<20)
			_ = f.WriteWindowUpdate(id, 1<<20)
			return
		}
		f.respond(id, "200", "early")
		_ = f.WriteRSTStream(id, http2.ErrCodeNo)
	}))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), peers.HedgedOnce(t))
	p.Dial().Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"+strings.Repeat("b", 200000)).Want(200, "early")
	if p.Seen.Outcome(t, 0); p.Seen.HedgesWon != 1 {
		t.Errorf("%d hedges won", p.Seen.HedgesWon)
	}
}

// A connection that the upstream closed while it was idle is not used again.
func TestIdleHTTP2ConnectionThatEndedIsNotUsed(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		frames(func(f *framer, id uint32) {
			f.respond(id, "200", "ok")
			if f.c.N == 1 {
				f.c.Conn.Close()
			}
		})(c)
	})
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
	c := p.Dial()
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").Want(200, "ok")
	peers.Soon(t, "the pool sees the end", func() bool { return p.Stats().Upstreams[0].Pool.Idle == 0 })
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").Want(200, "ok")
	if u.Connections() != 2 {
		t.Errorf("%d connections, want 2", u.Connections())
	}
}

// A response cut off by the upstream is cut off for the client.
func TestHTTP2UpstreamCutsItsResponse(t *testing.T) {
	u := peers.StartUpstream(t, frames(func(f *framer, id uint32) {
		var b bytes.Buffer
		_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true})
		_ = f.WriteData(id, false, []byte("part"))
		_ = f.WriteRSTStream(id, http2.ErrCodeInternal)
	}))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
	c := p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, body, err := c.Response("GET"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q %v", body, err)
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
}

// An attempt that is given up is reset, so that the upstream can stop; the
// connection and its other streams go on.
func TestAbandonedAttemptResetsItsStream(t *testing.T) {
	gone := make(chan struct{})
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Retryproxy-Attempt") == "1" {
			<-r.Context().Done()
			close(gone)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) { c.Default.AttemptTimeout = 200 * time.Millisecond })
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("the upstream still works on it")
	}
	if st := p.Stats().Upstreams[0].Pool; st.Dials != 1 {
		t.Errorf("%d dials, want 1", st.Dials)
	}
}

// A slow client's response does not fill our memory: flow control reaches the upstream.
func TestSlowClientSlowsAnHTTP2Upstream(t *testing.T) {
	const size = 24 << 20
	wrote := make(chan int, size)
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 64<<10)
		for range size / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
			wrote <- len(piece)
		}
	})
	p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) { c.WriteTimeout = time.Minute })
	c := p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := c.Reader.Peek(1); err != nil {
		t.Fatal(err)
	}
	sent, still := 0, 0
	for still < 20 {
		select {
		case n := <-wrote:
			sent, still = sent+n, 0
		case <-time.After(50 * time.Millisecond):
			still++
		}
	}
	if sent > size/2 {
		t.Errorf("the upstream could write %d bytes that nobody read", sent)
	}
	_, body, err := c.Response("GET")
	if err != nil || len(body) != size {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// A reload that drops the upstream ends its idle connections, and those in use
// when they are idle.
func TestReloadEndsHTTP2ConnectionsToUpstreamsNoLongerUsed(t *testing.T) {
	u := peers.StartUpstream(t, frames(func(f *framer, id uint32) { f.respond(id, "200", "ok") }))
	other := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
	next := *p.Config
	var err error
	if next.Default.Upstream, err = upstream.ParseTarget("http://" + other.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := p.Reload(&next); err != nil {
		t.Fatal(err)
	}
	peers.Soon(t, "the connection ends", func() bool { return u.Opened() == 0 })
}

func TestLargeHeadersFromHTTP2UpstreamAreRefused(t *testing.T) {
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 100<<10))
	})
	p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 })
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(502, "*")
}

// A length and trailers pass together between HTTP/2 connections.
func TestHTTP2TrailersAfterALengthArePassedOn(t *testing.T) {

	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
	})
	p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakHTTP2)
	res, body := p.Fetch(peers.HTTP2Client(t, nil), "GET", "/", nil)
	if body != "ok" || res.ContentLength != 2 || res.Trailer.Get("X-Late") != "late" {
		t.Errorf("%q, length %d, trailers %v", body, res.ContentLength, res.Trailer)
	}
}

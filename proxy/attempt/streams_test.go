package attempt

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	frames "golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// serveStreams runs an upstream of HTTP/2.
func serveStreams(t *testing.T, h http.HandlerFunc) *upstream.Group {
	t.Helper()
	return serveStreamsAhead(t, http2.ReadAhead{}, h)
}

// serveStreamsAhead runs an upstream of HTTP/2 of which so much is read ahead.
func serveStreamsAhead(t *testing.T, ahead http2.ReadAhead, h http.HandlerFunc) *upstream.Group {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	g := upstream.NewGroup(upstream.Target{Network: "tcp", Address: s.Listener.Addr().String(), Host: "a", Protocol: upstream.HTTP2}, upstream.Options{Start: testClock.Epoch(), ReadAhead: ahead})
	t.Cleanup(func() {
		g.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return g
}

// readAll returns the body and what ended it.
func readAll(a *Attempt) (string, error) {
	var got strings.Builder
	for {
		piece, err := a.Body().Next(testTimeout)
		got.Write(piece)
		if err != nil {
			return got.String(), err
		}
	}
}

// The body of a stream ends with its stream, with its trailers. For a client over HTTP/1.1 a declared length ends it,
// unless trailers are announced.
func TestTheBodyOfAStream(t *testing.T) {
	say := func(w http.ResponseWriter, text string) {
		_, _ = io.WriteString(w, text)
		w.(http.Flusher).Flush()
	}
	big := strings.Repeat("a", 100_000)
	for name, tc := range map[string]struct {
		handle  http.HandlerFunc
		body    string
		err     error
		trailer string
		lines   http1.Kind // for a client over HTTP/1.1
	}{
		"a length":    {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "5"); say(w, "hello") }, "hello", io.EOF, "", http1.BodyLength},
		"no length":   {func(w http.ResponseWriter, _ *http.Request) { say(w, "he"); say(w, "llo") }, "hello", io.EOF, "", http1.BodyStream},
		"a large one": {func(w http.ResponseWriter, _ *http.Request) { say(w, big); say(w, big) }, big + big, io.EOF, "", http1.BodyStream},
		"none":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "", io.EOF, "", http1.BodyNone},
		"empty":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.(http.Flusher).Flush() }, "", io.EOF, "", http1.BodyStream},
		"trailers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-End")
			say(w, "hello")
			w.Header().Set("X-End", "t")
		}, "hello", io.EOF, "t", http1.BodyStream},
		"trailers behind a length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-End")
			w.Header().Set("Content-Length", "5")
			say(w, "hello")
			w.Header().Set("X-End", "t")
		}, "hello", io.EOF, "t", http1.BodyStream},
		"a call of gRPC": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Content-Length", "5")
			say(w, "hello")
			w.Header().Set(http.TrailerPrefix+"X-End", "t")
		}, "hello", io.EOF, "t", http1.BodyStream},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) { say(w, "hel"); panic(http.ErrAbortHandler) }, "hel", ErrCut, "", http1.BodyStream},
		"cut off before its length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			say(w, "hel")
			panic(http.ErrAbortHandler)
		}, "hel", ErrCut, "", http1.BodyLength},
		"trailers beyond the limit": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-End")
			say(w, "hello")
			w.Header().Set("X-End", strings.Repeat("t", 2<<10))
		}, "hello", ErrTrailersTooLarge, "", http1.BodyStream},
	} {
		for _, form := range []wire.Form{wire.Lines, wire.Block} {
			r := newRequest(t, serveStreams(t, tc.handle))
			a := r.wants(Options{Limits: http1.Limits{HeaderBytes: 1 << 10, Headers: 20}, Form: form})
			kind := tc.lines
			if form == wire.Block && kind == http1.BodyLength {
				kind = http1.BodyStream
			}
			if got := a.Body().Framing().Kind; got != kind {
				t.Errorf("%s, form %v: framed as %v, want %v", name, form, got, kind)
			}
			if _, ok := a.HeaderOrTrailer("X-End"); ok && !a.Body().Ended() {
				t.Errorf("%s: a trailer before the end of the body", name)
			}
			a.Body().HeadersSent()
			if body, err := readAll(a); body != tc.body || err != tc.err || a.Body().Ended() != (err == io.EOF) {
				t.Errorf("%s, form %v: %.20q of %d bytes, %v", name, form, body, len(body), err)
			}
			if v, ok := a.HeaderOrTrailer("x-end"); tc.trailer != string(v) || ok != (tc.trailer != "") {
				t.Errorf("%s, form %v: the trailer is %q", name, form, v)
			}
			a.Abandon()
		}
	}
}

// A stream carries the body of a request as it comes, with its trailers, and a hedge carries the same.
func TestARequestOnAStream(t *testing.T) {
	for name, hedge := range map[string]bool{"first": false, "hedge": true} {
		calls := make(chan struct{}, 2)
		r := newRequest(t, serveStreams(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			calls <- struct{}{}
			if hedge && len(calls) == 1 {
				<-r.Context().Done()
				return
			}
			w.Header().Set("X-Trailer", r.Trailer.Get("A"))
			_, _ = w.Write(body)
		})).withBody(10, "first,last")
		r.framing, r.trails = http1.Framing{Kind: http1.BodyStream, Length: -1}, []http1.Header{http1.NewHeader("a", "b")}
		var a *Attempt
		if hedge {
			first, second, _ := hedged(r)
			if !first.Overtaken() {
				t.Fatal("the hedge did not end first")
			}
			first.Abandon()
			first.EndHedge()
			second.Adopt(Options{Limits: usual}, true)
			a = second
		} else {
			a = r.wants(Options{Limits: usual})
		}
		if v, _ := a.Response().Lookup("X-Trailer"); string(v) != "b" {
			t.Errorf("%s: the trailer came as %q", name, v)
		}
		if body, err := readAll(a); body != "first,last" || err != io.EOF || !a.IsSent() {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		a.Release(a.now)
	}
}

// A response on a stream is kept, and compacted, as one on a connection of its own.
func TestAKeptResponseOfAStream(t *testing.T) {
	r := newRequest(t, serveStreams(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Own", "v")
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, "hello")
	}))
	a := r.wants(Options{Limits: usual})
	if err := readAhead(a); err != io.EOF {
		t.Fatal(err)
	}
	var k Kept
	a.Keep(&k, false, a.now)
	for range 2 {
		k.Compact(&spans{})
		k.Restore(usual, []byte("GET"))
		own, _ := k.Response().Lookup("X-Own")
		if k.Response().Status != 503 || string(own) != "v" || string(k.Body()) != "hello" || k.Response().Body.Kind != http1.BodyLength {
			t.Errorf("%d with X-Own %q, body %q framed as %v", k.Response().Status, own, k.Body(), k.Response().Body.Kind)
		}
	}
	k.Release(&spans{})
}

// A stream that the upstream ends without a response, or resets, has its cause.
func TestHowAStreamEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		limits http1.Limits
		handle http.HandlerFunc
		cause  policy.Cause
	}{
		"reset":             {usual, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, policy.CauseReset},
		"headers too large": {http1.Limits{HeaderBytes: 1 << 10, Headers: 20}, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", strings.Repeat("a", 2<<10)) }, policy.CauseHeadersTooLarge},
		"hints first":       {usual, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(200) }, policy.CauseStatus},
	} {
		r := newRequest(t, serveStreams(t, tc.handle))
		a, cause := r.send(Options{Limits: tc.limits})
		if cause != tc.cause || a.InFlight() != (cause == policy.CauseStatus) {
			t.Errorf("%s: %v, in flight %v", name, cause, a.InFlight())
		}
		if name == "hints first" && (len(r.told) != 1 || r.told[0] != 103) {
			t.Errorf("told %v", r.told)
		}
		a.Abandon()
	}
}

// A response that is whole but for the trailers behind its declared length is whole soon.
func TestTheEndOfAStreamBehindItsLengthIsAwaitedBriefly(t *testing.T) {
	release := make(chan struct{})
	r := newRequest(t, serveStreams(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-End")
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
		w.(http.Flusher).Flush()
		<-release
	}))
	defer close(release)
	a := r.wants(Options{Limits: usual})
	var got strings.Builder
	var err error
	for err == nil {
		if got.Len() == 5 {
			if a.Body().Ended() {
				t.Error("it has ended before its stream did")
			}
			_ = a.Body().fill(1) // so that nothing waits for 5 s
		}
		var piece []byte
		piece, err = a.Body().Next(testTimeout)
		got.Write(piece)
	}
	if got.String() != "hello" || !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// A response that is given up while its client takes an interim one is the client's fault. It is no failure of the
// upstream that could be retried.
func TestAResponseGivenUpBehindAnInterimOneIsTheClientsFault(t *testing.T) {
	informed := make(chan struct{})
	ahead := http2.ReadAhead{Backlog: http2.NewBacklog(1)}
	r := newRequest(t, serveStreamsAhead(t, ahead, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(103)
		<-informed
		for piece := make([]byte, 32<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	r.inform = func() {
		close(informed)
		for until := time.Now().Add(testTimeout); ahead.Backlog.Ended() == 0 && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
	}
	a, cause := r.send(Options{Limits: usual})
	if ahead.Backlog.Ended() != 1 {
		t.Fatal("it was not given up")
	}
	if r.ClientStaysOn() || cause != policy.CauseReset {
		t.Errorf("%v, the client stays: %v", cause, r.ClientStaysOn())
	}
	if !a.InFlight() || !a.Progress().Begun {
		t.Error("it does not end as if the client had left behind the beginning of the response")
	}
}

// A response that is given up while its upstream takes nothing of the request's body is not the client's fault: it had
// nothing to take.
func TestAResponseGivenUpWhileItsRequestIsNotTakenIsTheUpstreamsFault(t *testing.T) {
	ahead := http2.ReadAhead{Window: 64 << 10, Backlog: http2.NewBacklog(1)}
	inMemoryTo(t, "h2c://a.example", upstream.Options{ReadAhead: ahead}, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(frames.ClientPreface)))
		w := frames.NewFramer(c, c)
		_ = w.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 0})
		for {
			f, err := w.ReadFrame()
			if err != nil {
				return
			}
			if h, is := f.(*frames.HeadersFrame); is {
				_ = w.WriteHeaders(frames.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true}) // 200
				for range 3 {
					_ = w.WriteData(h.StreamID, false, make([]byte, 15<<10))
				}
			}
		}
	}, func(r *request) {
		go func() {
			time.Sleep(2 * time.Second)
			ahead.Backlog.Wait(1, func() bool { return false })() // another body
		}()
		began := time.Now()
		_, cause := r.withBody(100_000, strings.Repeat("a", 100_000)).send(Options{Limits: usual})
		if ahead.Backlog.Ended() != 1 || time.Since(began) < testTimeout {
			r.t.Fatalf("%d were given up, and the request was written for %v", ahead.Backlog.Ended(), time.Since(began))
		}
		if cause != policy.CauseReset || !r.ClientStaysOn() {
			r.t.Errorf("%v, the client stays: %v", cause, r.ClientStaysOn())
		}
	})
}

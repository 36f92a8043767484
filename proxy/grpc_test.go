package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/exchange"
)

// What a test's server ends without a message it ends at once, but at once can
// be long on a busy machine.
func init() { exchange.GRPCStatusWait, exchange.GRPCEndWait = time.Minute, 500*time.Millisecond }

// speakGRPC lets calls through that are retried on these statuses.
func speakGRPC(t testing.TB, retryOn string) func(*Config) {
	on, err := policy.ParseRetryOn(retryOn)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) {
		speakHTTP2(c)
		c.Default.Policy.RetryOn = on
	}
}

// message frames a gRPC message.
func message(s string) []byte {
	return append([]byte{0, byte(len(s) >> 24), byte(len(s) >> 16), byte(len(s) >> 8), byte(len(s))}, s...)
}

// grpcResult is what a call came to for its client.
type grpcResult struct {
	status, message string
	body            string
	header          http.Header
	trailersOnly    bool
}

func (a grpcResult) String() string {
	return fmt.Sprintf("status %s %q, body %q", a.status, a.message, a.body)
}

// call makes a gRPC call and reads it to its end.
func (p *front) call(body io.Reader, fields ...string) grpcResult {
	p.t.Helper()
	req, _ := http.NewRequest("POST", "http://"+p.addr+"/pkg.Service/Method", body)
	req.Header = http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, err := http2Client(p.t, nil).Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatalf("body: %v after %q", err, b)
	}
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(ct, "application/grpc") {
		p.t.Errorf("a gRPC client got HTTP status %d and %q", res.StatusCode, ct)
	}
	a := grpcResult{status: res.Trailer.Get("Grpc-Status"), message: res.Trailer.Get("Grpc-Message"), body: string(b), header: res.Header}
	if s := res.Header.Get("Grpc-Status"); s != "" {
		a.status, a.message, a.trailersOnly = s, res.Header.Get("Grpc-Message"), true
	}
	return a
}

// grpcServer answers each attempt, numbered from 1, by answer; it gives the
// requests' headers.
func grpcServer(t testing.TB, response func(n int, w http.ResponseWriter, r *http.Request)) (addr string, allHeaders chan http.Header) {
	allHeaders = make(chan http.Header, 100)
	n := make(chan int, 1)
	n <- 0
	return http2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		k := <-n + 1
		n <- k
		allHeaders <- r.Header
		w.Header().Set("Content-Type", "application/grpc")
		response(k, w, r)
	}), allHeaders
}

// ok answers a call with a message and status 0.
func ok(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body)
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}

// only ends a call in its header ("Trailers-Only").
func only(w http.ResponseWriter, status string) { w.Header().Set("Grpc-Status", status) }

// writeLateStatus ends a call in trailers behind a header without a message.
func writeLateStatus(w http.ResponseWriter, status string) {
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
	w.Header().Set(http.TrailerPrefix+"Grpc-Message", "told late")
}

func TestGRPCCallIsRetriedByItsStatus(t *testing.T) {
	for name, fail := range map[string]func(http.ResponseWriter, string){"header": only, "trailers": writeLateStatus} {
		t.Run(name, func(t *testing.T) {
			addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				if n <= 2 {
					_, _ = io.Copy(io.Discard, r.Body)
					fail(w, "14")
					return
				}
				ok(w, r)
			})
			p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
			if a := p.call(bytes.NewReader(message("hello"))); a.status != "0" || a.body != string(message("hello")) {
				t.Error(a)
			}
			for n := range 3 {
				want := ""
				if n > 0 {
					want = fmt.Sprint(n)
				}
				if got := (<-allHeaders).Get("Grpc-Previous-Rpc-Attempts"); got != want {
					t.Errorf("attempt %d said %q attempts before, want %q", n+1, got, want)
				}
			}
			if o := p.seen.outcome(t, 0); o != policy.OutcomeRecovered || p.seen.retries[0] != policy.ReasonGRPC || p.seen.classes[0] != policy.Rejected {
				t.Errorf("%v %v %v", o, p.seen.retries, p.seen.classes)
			}
		})
	}
}

// The last response is the client's when retries end, with its message and trailers.
func TestGRPCStatusThatStaysReachesTheClient(t *testing.T) {
	for name, fail := range map[string]func(http.ResponseWriter, string){"header": only, "trailers": writeLateStatus} {
		t.Run(name, func(t *testing.T) {
			addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("X-N", fmt.Sprint(n))
				fail(w, "14")
			})
			p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
			a := p.call(bytes.NewReader(message("hello")))
			if a.status != "14" || a.header.Get("X-N") != "4" || len(allHeaders) != 4 || name == "trailers" && a.message != "told late" {
				t.Errorf("%v %v after %d attempts", a, a.header, len(allHeaders))
			}
		})
	}
}

func TestGRPCStatusNotListedIsNotRetried(t *testing.T) {
	addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) { only(w, "5") })
	p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable,5xx"))
	if a := p.call(bytes.NewReader(message("hello"))); a.status != "5" || len(allHeaders) != 1 {
		t.Errorf("%v after %d attempts", a, len(allHeaders))
	}
}

// After a message nothing is retried, whatever the trailers say.
func TestGRPCCallIsNotRetriedAfterAMessage(t *testing.T) {
	addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(message("first"))
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "14")
	})
	p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
	if a := p.call(bytes.NewReader(message("hello"))); a.status != "14" || a.body != string(message("first")) || len(allHeaders) != 1 {
		t.Errorf("%v after %d attempts", a, len(allHeaders))
	}
}

func TestGRPCPushback(t *testing.T) {
	for _, tc := range []struct {
		pushback string
		attempts int
		waited   time.Duration
		outcome  policy.Outcome
	}{
		{"300", 2, 300 * time.Millisecond, policy.OutcomeRecovered},
		{"-1", 1, 0, policy.GaveUp(policy.ReasonAskedNotToRetry)},
		{"soon", 1, 0, policy.GaveUp(policy.ReasonAskedNotToRetry)},
		{"", 2, 0, policy.OutcomeRecovered},
		{"99999999999999", 1, 0, policy.GaveUp(policy.ReasonRetryAfterTooLong)},
	} {
		for name, fail := range map[string]func(http.ResponseWriter, string){"header": only, "trailers": writeLateStatus} {
			addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				if n > 1 {
					ok(w, r)
					return
				}
				if tc.pushback != "" {
					w.Header().Set("Grpc-Retry-Pushback-Ms", tc.pushback)
				}
				fail(w, "14")
			})
			p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
			p.call(bytes.NewReader(message("hello")))
			if len(allHeaders) != tc.attempts {
				t.Errorf("pushback %q in %s: %d attempts, want %d", tc.pushback, name, len(allHeaders), tc.attempts)
			}
			if o := p.seen.outcome(t, 0); o != tc.outcome {
				t.Errorf("pushback %q in %s: %v, want %v", tc.pushback, name, o, tc.outcome)
			}
			if tc.waited > 0 && (len(p.seen.waits) != 1 || p.seen.waits[0] < tc.waited) {
				t.Errorf("pushback %q in %s: waited %v", tc.pushback, name, p.seen.waits)
			}
		}
	}
}

// Clients of gRPC get gRPC's statuses, whatever went wrong where.
func TestGRPCClientGetsErrorsInGRPC(t *testing.T) {
	dead := startUpstream(t, func(c *upConn) {})
	deadAddr := dead.Addr().String()
	dead.Close()
	silent, _ := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	html := func(status int) string {
		return http2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<h1>no</h1>")
		})
	}
	for name, tc := range map[string]struct {
		addr   string
		fields []string
		change func(c *Config)
		status string
		says   string
	}{
		"not reached":        {addr: deadAddr, status: "14", says: "could not be reached"},
		"too late":           {addr: silent, fields: []string{"Grpc-Timeout", "200m"}, status: "4", says: "in time"},
		"503 from a breaker": {addr: html(503), status: "14", says: "503"},
		"404":                {addr: html(404), status: "12", says: "404"},
		"200 without gRPC":   {addr: html(200), status: "2", says: "200"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxyTo(t, "h2c://"+tc.addr, func(c *Config) {
				speakGRPC(t, "5xx,grpc-unavailable")(c)
				c.Default.Policy.MaxRetries = 1
				if tc.change != nil {
					tc.change(c)
				}
			})
			a := p.call(bytes.NewReader(message("hello")), tc.fields...)
			if a.status != tc.status || !strings.Contains(a.message, tc.says) || a.body != "" || !a.trailersOnly {
				t.Errorf("%v, want status %s and %q", a, tc.status, tc.says)
			}
		})
	}
}

// A call cut off after its first message ends with a status, not as if whole.
func TestGRPCCallCutOffEndsWithAStatus(t *testing.T) {
	addr, _ := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(message("first"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
	if a := p.call(bytes.NewReader(message("hello"))); a.status != "14" || a.body != string(message("first")) {
		t.Error(a)
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
}

// A call cut off before its first message was not given to the client at all.
func TestGRPCCallCutOffBeforeAMessage(t *testing.T) {
	addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n > 1 {
			ok(w, r)
			return
		}
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	p := startProxyTo(t, "h2c://"+addr, func(c *Config) {
		speakGRPC(t, "grpc-unavailable,reset")(c)
		c.Default.Policy.Unsafe = true
	})
	if a := p.call(bytes.NewReader(message("hello"))); a.status != "0" || len(allHeaders) != 2 {
		t.Errorf("%v after %d attempts", a, len(allHeaders))
	}
}

// A stream has no deadline but its client's, and may pause.
func TestGRPCStreamOutlivesTheRoutesTimeouts(t *testing.T) {
	goOn := make(chan struct{})
	addr, _ := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		<-goOn
		_, _ = w.Write(message("one"))
		w.(http.Flusher).Flush()
		<-goOn
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	p := startProxyTo(t, "h2c://"+addr, func(c *Config) {
		speakGRPC(t, "grpc-unavailable,attempt-timeout")(c)
		c.Default.Policy.Unsafe = true
		c.Default.AttemptTimeout, c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 50*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	})
	go func() {
		for range 2 {
			time.Sleep(400 * time.Millisecond)
			goOn <- struct{}{}
		}
	}()
	if a := p.call(bytes.NewReader(message("hello"))); a.status != "0" || a.body != string(message("one")) {
		t.Error(a)
	}
	if n := p.seen.outcome(t, 0); n != policy.OutcomeSuccess {
		t.Errorf("outcome %v", n)
	}
}

// Both sides of a stream see each message as it comes, headers first.
func TestGRPCBidirectionalStream(t *testing.T) {
	addr, _ := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
	r, w := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+p.addr+"/s/m", r)
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	res, err := http2Client(t, nil).Do(req) // returns with the header, before any message
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for i := range 20 {
		m := message(fmt.Sprint("message ", i))
		if _, err := w.Write(m); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(m))
		if _, err := io.ReadFull(res.Body, got); err != nil || !bytes.Equal(got, m) {
			t.Fatalf("message %d: %q %v", i, got, err)
		}
	}
	_ = w.Close()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 || res.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%q %v %v", rest, err, res.Trailer)
	}
}

// A stream refused after some of its messages were sent is sent again whole.
func TestRefusedGRPCStreamIsReplayed(t *testing.T) {
	n := 0
	var second bytes.Buffer
	u := startUpstream(t, func(c *upConn) {
		_, _ = c.Reader.Discard(len(http2.ClientPreface))
		f := http2.NewFramer(c.Conn, c.Reader)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.HeadersFrame:
				n++
			case *http2.DataFrame:
				switch {
				case frame.StreamID == 1 && n == 1:
					_ = f.WriteRSTStream(1, http2.ErrCodeRefusedStream)
				case frame.StreamID == 3:
					second.Write(frame.Data())
					if frame.StreamEnded() {
						(&framer{f, c}).respond(3, "200", "", "content-type", "application/grpc", "grpc-status", "0")
					}
				}
			}
		}
	})
	p := startProxyTo(t, "h2c://"+u.Addr().String(), speakGRPC(t, "connect-failure"))
	r, w := io.Pipe()
	go func() {
		for i := range 5 {
			_, _ = w.Write(message(fmt.Sprint(i)))
			time.Sleep(20 * time.Millisecond)
		}
		_ = w.Close()
	}()
	if a := p.call(r); a.status != "0" {
		t.Error(a)
	}
	want := ""
	for i := range 5 {
		want += string(message(fmt.Sprint(i)))
	}
	if second.String() != want {
		t.Errorf("the second attempt had %q, want %q", second.String(), want)
	}
}

// The deadline is lowered by what was spent, attempt by attempt.
func TestGRPCTimeoutIsLowered(t *testing.T) {
	addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		if n == 1 {
			only(w, "14")
			return
		}
		ok(w, r)
	})
	p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
	if a := p.call(bytes.NewReader(message("hello")), "Grpc-Timeout", "40S"); a.status != "0" {
		t.Fatal(a)
	}
	left := []time.Duration{40 * time.Second}
	for range 2 {
		d, err := time.ParseDuration(strings.NewReplacer("S", "s", "m", "ms", "u", "us", "n", "ns").Replace((<-allHeaders).Get("Grpc-Timeout")))
		if err != nil || d >= left[len(left)-1] || d < 20*time.Second {
			t.Errorf("%v left after %v (%v)", d, left, err)
		}
		left = append(left, d)
	}
}

// A client that cancels ends the call upstream.
func TestGRPCCancel(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	addr, _ := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	})
	p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable"))
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+p.addr+"/s/m", bytes.NewReader(message("x")))
	req.Header.Set("Content-Type", "application/grpc")
	go func() { <-began; cancel() }()
	if _, err := http2Client(t, nil).Do(req); err == nil {
		t.Error("it was answered")
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the call goes on upstream")
	}
}

// A stream that is refused when its client has sent a message and waits for an
// answer is retried with that message, and goes on.
func TestGRPCStreamRefusedInTheMiddle(t *testing.T) {
	for name, refuse := range map[string]func(http.ResponseWriter, *http.Request){
		"reset":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"unavailable": func(w http.ResponseWriter, _ *http.Request) { only(w, "14") },
	} {
		t.Run(name, func(t *testing.T) {
			second := make(chan string, 1)
			addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				one := make([]byte, len(message("one")))
				_, _ = io.ReadFull(r.Body, one)
				if n == 1 {
					refuse(w, r)
					return
				}
				_, _ = w.Write(message("first"))
				w.(http.Flusher).Flush()
				rest, _ := io.ReadAll(r.Body)
				second <- string(one) + string(rest)
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			})
			p := startProxyTo(t, "h2c://"+addr, func(c *Config) {
				speakGRPC(t, "grpc-unavailable,reset")(c)
				c.Default.Policy.Unsafe = true
			})
			in, out := io.Pipe()
			answered := make(chan grpcResult, 1)
			go func() { answered <- p.call(in) }()
			_, _ = out.Write(message("one"))
			for range 2 {
				within(t, "an attempt", allHeaders)
			}
			_, _ = out.Write(message("two"))
			_ = out.Close()
			if a := within(t, "the end of the call", answered); a.status != "0" || a.body != string(message("first")) {
				t.Error(a)
			}
			if got, want := within(t, "the second attempt's messages", second), string(message("one"))+string(message("two")); got != want {
				t.Errorf("the second attempt carried %q, want %q", got, want)
			}
			if o := p.seen.outcome(t, 0); o != policy.OutcomeRecovered {
				t.Errorf("outcome %v", o)
			}
		})
	}
}

// Trailers may be as large as headers. Beyond that the reason is their size, and no upstream is blamed.
func TestGRPCTrailersMayBeAsLargeAsHeaders(t *testing.T) {
	for _, messages := range []string{"", string(message("hello"))} {
		for size, want := range map[int]grpcResult{
			20 << 10: {status: "3", message: "told late"},
			70 << 10: {status: "8", message: "retryproxy: trailers_too_large: the trailers of the call are larger than the limit for headers"},
		} {
			addr, allHeaders := grpcServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, messages)
				w.(http.Flusher).Flush()
				h := w.Header()
				h.Set(http.TrailerPrefix+"Grpc-Status", "3")
				h.Set(http.TrailerPrefix+"Grpc-Message", "told late")
				h.Set(http.TrailerPrefix+"Grpc-Status-Details-Bin", strings.Repeat("a", size))
			})
			p := startProxyTo(t, "h2c://"+addr, speakGRPC(t, "grpc-unavailable,reset"))
			a := p.call(bytes.NewReader(message("hello")))
			if a.status != want.status || a.message != want.message || a.body != messages || len(allHeaders) != 1 {
				t.Errorf("%d bytes after %d: status %s, %q, %d bytes, %d attempts", size, len(messages), a.status, a.message, len(a.body), len(allHeaders))
			}
		}
	}
}

// The trailers of a short response reach an HTTP/1.1 client, through two proxies as well.
func TestTrailersOfAShortResponseAreKept(t *testing.T) {
	addr := http2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Length"] = nil // net/http would send one
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
		_, _ = io.WriteString(w, "ok")
	})
	far := startProxyTo(t, "h2c://"+addr, speakHTTP2)
	near := startProxyTo(t, "h2c://"+far.addr, nil)
	for name, p := range map[string]*testProxy{"one proxy": far, "two proxies": near} {
		c := p.dial()
		for range 10 {
			c.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
			res, body, err := c.response("GET")
			if err != nil || body != "ok" || res.ContentLength != -1 || res.Trailer.Get("X-Late") != "late" {
				t.Fatalf("%s: %q %v, length %d, trailers %v", name, body, err, res.ContentLength, res.Trailer)
			}
		}
	}
}

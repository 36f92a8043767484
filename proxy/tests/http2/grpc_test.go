package http2

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
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

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
			addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				if n <= 2 {
					_, _ = io.Copy(io.Discard, r.Body)
					fail(w, "14")
					return
				}
				peers.GRPCEcho(w, r)
			})
			p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
			if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello"))); a.Status != "0" || a.Body != string(peers.GRPCMessage("hello")) {
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
			if o := p.Seen.Outcome(t, 0); o != policy.OutcomeRecovered || p.Seen.Retries[0] != policy.ReasonGRPC || p.Seen.Classes[0] != policy.Rejected {
				t.Errorf("%v %v %v", o, p.Seen.Retries, p.Seen.Classes)
			}
		})
	}
}

// The last response is the client's when retries end, with its message and trailers.
func TestGRPCStatusThatStaysReachesTheClient(t *testing.T) {
	for name, fail := range map[string]func(http.ResponseWriter, string){"header": only, "trailers": writeLateStatus} {
		t.Run(name, func(t *testing.T) {
			addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("X-N", fmt.Sprint(n))
				fail(w, "14")
			})
			p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
			a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello")))
			if a.Status != "14" || a.Header.Get("X-N") != "4" || len(allHeaders) != 4 || name == "trailers" && a.Message != "told late" {
				t.Errorf("%v %v after %d attempts", a, a.Header, len(allHeaders))
			}
		})
	}
}

func TestGRPCStatusNotListedIsNotRetried(t *testing.T) {
	addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) { only(w, "5") })
	p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable,5xx"))
	if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello"))); a.Status != "5" || len(allHeaders) != 1 {
		t.Errorf("%v after %d attempts", a, len(allHeaders))
	}
}

// After a message nothing is retried, whatever the trailers say.
func TestGRPCCallIsNotRetriedAfterAMessage(t *testing.T) {
	addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(peers.GRPCMessage("first"))
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "14")
	})
	p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
	if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello"))); a.Status != "14" || a.Body != string(peers.GRPCMessage("first")) || len(allHeaders) != 1 {
		t.Errorf("%v after %d attempts", a, len(allHeaders))
	}
}

func TestGRPCPushback(t *testing.T) {
	for _, tc := range []struct {
		pushback string
		attempts int
		waited   time.Duration
		outcome  policy.Outcome
		headers  map[string]string // more of the response
	}{
		{"300", 2, 300 * time.Millisecond, policy.OutcomeRecovered, nil},
		{"300", 2, 300 * time.Millisecond, policy.OutcomeRecovered, map[string]string{"Retry-After": "1000"}},
		{"-1", 1, 0, policy.GaveUp(policy.ReasonAskedNotToRetry), nil},
		{"-1", 1, 0, policy.GaveUp(policy.ReasonAskedNotToRetry), map[string]string{"X-Should-Retry": "true"}},
		{"300", 1, 0, policy.GaveUp(policy.ReasonAskedNotToRetry), map[string]string{"X-Should-Retry": "false"}},
		{"soon", 1, 0, policy.GaveUp(policy.ReasonAskedNotToRetry), nil},
		{"", 2, 0, policy.OutcomeRecovered, nil},
		{"99999999999999", 1, 0, policy.GaveUp(policy.ReasonRetryAfterTooLong), nil},
	} {
		for name, fail := range map[string]func(http.ResponseWriter, string){"header": only, "trailers": writeLateStatus} {
			addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				if n > 1 {
					peers.GRPCEcho(w, r)
					return
				}
				if tc.pushback != "" {
					w.Header().Set("Grpc-Retry-Pushback-Ms", tc.pushback)
				}
				for name, value := range tc.headers {
					w.Header().Set(name, value)
				}
				fail(w, "14")
			})
			p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
			p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello")))
			if len(allHeaders) != tc.attempts {
				t.Errorf("pushback %q in %s: %d attempts, want %d", tc.pushback, name, len(allHeaders), tc.attempts)
			}
			if o := p.Seen.Outcome(t, 0); o != tc.outcome {
				t.Errorf("pushback %q in %s: %v, want %v", tc.pushback, name, o, tc.outcome)
			}
			if tc.waited > 0 && (len(p.Seen.Waits) != 1 || p.Seen.Waits[0] < tc.waited) {
				t.Errorf("pushback %q in %s: waited %v", tc.pushback, name, p.Seen.Waits)
			}
		}
	}
}

// Clients of gRPC get gRPC's statuses, whatever went wrong where.
func TestGRPCClientGetsErrorsInGRPC(t *testing.T) {
	dead := peers.StartUpstream(t, func(c *peers.Conn) {})
	deadAddr := dead.Addr().String()
	dead.Close()
	silent, _ := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	html := func(status int) string {
		return peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<h1>no</h1>")
		})
	}
	for name, tc := range map[string]struct {
		addr   string
		fields []string
		change func(c *proxy.Config)
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
			p := proxytest.StartTo(t, "h2c://"+tc.addr, func(c *proxy.Config) {
				peers.SpeakGRPC(t, "5xx,grpc-unavailable")(c)
				c.Default.Policy.MaxRetries = 1
				if tc.change != nil {
					tc.change(c)
				}
			})
			a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello")), tc.fields...)
			if a.Status != tc.status || !strings.Contains(a.Message, tc.says) || a.Body != "" || !a.TrailersOnly {
				t.Errorf("%v, want status %s and %q", a, tc.status, tc.says)
			}
		})
	}
}

// A call cut off after its first message ends with a status, not as if whole.
func TestGRPCCallCutOffEndsWithAStatus(t *testing.T) {
	addr, _ := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(peers.GRPCMessage("first"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
	if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello"))); a.Status != "14" || a.Body != string(peers.GRPCMessage("first")) {
		t.Error(a)
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
}

// A call cut off before its first message was not given to the client at all.
func TestGRPCCallCutOffBeforeAMessage(t *testing.T) {
	addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n > 1 {
			peers.GRPCEcho(w, r)
			return
		}
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) {
		peers.SpeakGRPC(t, "grpc-unavailable,reset")(c)
		c.Default.Policy.Unsafe = true
	})
	if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello"))); a.Status != "0" || len(allHeaders) != 2 {
		t.Errorf("%v after %d attempts", a, len(allHeaders))
	}
}

// A stream has no deadline but its client's, and may pause.
func TestGRPCStreamOutlivesTheRoutesTimeouts(t *testing.T) {
	goOn := make(chan struct{})
	addr, _ := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		<-goOn
		_, _ = w.Write(peers.GRPCMessage("one"))
		w.(http.Flusher).Flush()
		<-goOn
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) {
		peers.SpeakGRPC(t, "grpc-unavailable,attempt-timeout")(c)
		c.Default.Policy.Unsafe = true
		c.Default.AttemptTimeout, c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 50*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	})
	go func() {
		for range 2 {
			time.Sleep(400 * time.Millisecond)
			goOn <- struct{}{}
		}
	}()
	if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello"))); a.Status != "0" || a.Body != string(peers.GRPCMessage("one")) {
		t.Error(a)
	}
	if n := p.Seen.Outcome(t, 0); n != policy.OutcomeSuccess {
		t.Errorf("outcome %v", n)
	}
}

// Both sides of a stream see each message as it comes, headers first.
func TestGRPCBidirectionalStream(t *testing.T) {
	addr, _ := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
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
	p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
	r, w := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+p.Addr+"/s/m", r)
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	res, err := peers.HTTP2Client(t, nil).Do(req) // returns with the header, before any message
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for i := range 20 {
		m := peers.GRPCMessage(fmt.Sprint("message ", i))
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
	u := peers.StartUpstream(t, func(c *peers.Conn) {
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
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), peers.SpeakGRPC(t, "connect-failure"))
	r, w := io.Pipe()
	go func() {
		for i := range 5 {
			_, _ = w.Write(peers.GRPCMessage(fmt.Sprint(i)))
			time.Sleep(20 * time.Millisecond)
		}
		_ = w.Close()
	}()
	if a := p.CallGRPC(r); a.Status != "0" {
		t.Error(a)
	}
	want := ""
	for i := range 5 {
		want += string(peers.GRPCMessage(fmt.Sprint(i)))
	}
	if second.String() != want {
		t.Errorf("the second attempt had %q, want %q", second.String(), want)
	}
}

// The deadline is lowered by what was spent, attempt by attempt.
func TestGRPCTimeoutIsLowered(t *testing.T) {
	addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		if n == 1 {
			only(w, "14")
			return
		}
		peers.GRPCEcho(w, r)
	})
	p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
	if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello")), "Grpc-Timeout", "40S"); a.Status != "0" {
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
	addr, _ := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	})
	p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable"))
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+p.Addr+"/s/m", bytes.NewReader(peers.GRPCMessage("x")))
	req.Header.Set("Content-Type", "application/grpc")
	go func() { <-began; cancel() }()
	if _, err := peers.HTTP2Client(t, nil).Do(req); err == nil {
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
			addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				one := make([]byte, len(peers.GRPCMessage("one")))
				_, _ = io.ReadFull(r.Body, one)
				if n == 1 {
					refuse(w, r)
					return
				}
				_, _ = w.Write(peers.GRPCMessage("first"))
				w.(http.Flusher).Flush()
				rest, _ := io.ReadAll(r.Body)
				second <- string(one) + string(rest)
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			})
			p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) {
				peers.SpeakGRPC(t, "grpc-unavailable,reset")(c)
				c.Default.Policy.Unsafe = true
			})
			in, out := io.Pipe()
			answered := make(chan peers.GRPCResult, 1)
			go func() { answered <- p.CallGRPC(in) }()
			_, _ = out.Write(peers.GRPCMessage("one"))
			for range 2 {
				peers.Within(t, "an attempt", allHeaders)
			}
			_, _ = out.Write(peers.GRPCMessage("two"))
			_ = out.Close()
			if a := peers.Within(t, "the end of the call", answered); a.Status != "0" || a.Body != string(peers.GRPCMessage("first")) {
				t.Error(a)
			}
			if got, want := peers.Within(t, "the second attempt's messages", second), string(peers.GRPCMessage("one"))+string(peers.GRPCMessage("two")); got != want {
				t.Errorf("the second attempt carried %q, want %q", got, want)
			}
			if o := p.Seen.Outcome(t, 0); o != policy.OutcomeRecovered {
				t.Errorf("outcome %v", o)
			}
		})
	}
}

// Trailers may be as large as headers. Beyond that the reason is their size, and no upstream is blamed.
func TestGRPCTrailersMayBeAsLargeAsHeaders(t *testing.T) {
	for _, messages := range []string{"", string(peers.GRPCMessage("hello"))} {
		for size, want := range map[int]peers.GRPCResult{
			20 << 10: {Status: "3", Message: "told late"},
			70 << 10: {Status: "8", Message: "retryproxy: trailers_too_large: the trailers of the call are larger than the limit for headers"},
		} {
			addr, allHeaders := peers.GRPCServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, messages)
				w.(http.Flusher).Flush()
				h := w.Header()
				h.Set(http.TrailerPrefix+"Grpc-Status", "3")
				h.Set(http.TrailerPrefix+"Grpc-Message", "told late")
				h.Set(http.TrailerPrefix+"Grpc-Status-Details-Bin", strings.Repeat("a", size))
			})
			p := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakGRPC(t, "grpc-unavailable,reset"))
			a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("hello")))
			if a.Status != want.Status || a.Message != want.Message || a.Body != messages || len(allHeaders) != 1 {
				t.Errorf("%d bytes after %d: status %s, %q, %d bytes, %d attempts", size, len(messages), a.Status, a.Message, len(a.Body), len(allHeaders))
			}
		}
	}
}

// The trailers of a short response reach an HTTP/1.1 client, through two proxies as well.
func TestTrailersOfAShortResponseAreKept(t *testing.T) {
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Length"] = nil // net/http would send one
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
		_, _ = io.WriteString(w, "ok")
	})
	far := proxytest.StartTo(t, "h2c://"+addr, peers.SpeakHTTP2)
	near := proxytest.StartTo(t, "h2c://"+far.Addr, nil)
	for name, p := range map[string]*proxytest.Proxy{"one proxy": far, "two proxies": near} {
		c := p.Dial()
		for range 10 {
			c.Send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
			res, body, err := c.Response("GET")
			if err != nil || body != "ok" || res.ContentLength != -1 || res.Trailer.Get("X-Late") != "late" {
				t.Fatalf("%s: %q %v, length %d, trailers %v", name, body, err, res.ContentLength, res.Trailer)
			}
		}
	}
}

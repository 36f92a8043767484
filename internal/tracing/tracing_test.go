package tracing

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy"
)

const (
	clientsTrace = "0af7651916cd43dd8448eb211c80319c"
	clientsSpan  = "b7ad6b7169203331"
	sampled      = "traceparent: 00-" + clientsTrace + "-" + clientsSpan + "-01"
	unsampled    = "traceparent: 00-" + clientsTrace + "-" + clientsSpan + "-00"
)

// versions runs a test with clients and upstreams of both HTTP versions.
func versions(t *testing.T, test func(t *testing.T, h2 bool, scheme string)) {
	for _, h2 := range []bool{false, true} {
		for _, scheme := range []string{"http", "h2c"} {
			t.Run(fmt.Sprintf("h2=%v to %s", h2, scheme), func(t *testing.T) { test(t, h2, scheme) })
		}
	}
}

func (o *origin) url(scheme string) string { return scheme + "://" + o.Listener.Addr().String() }

func TestOneSpanPerRequestAndPerAttempt(t *testing.T) {
	versions(t, func(t *testing.T, h2 bool, scheme string) {
		r := startReceiver(t)
		o := startOrigin(t, status(503), status(503), status(200))
		s := start(t, r.URL, o.url(scheme), h2, nil)
		s.ask("/orders/7?secret=1", sampled, "tracestate: a=1", "tracestate: b=2")
		servers, clients := r.spansOf(s, 1)
		if len(servers) != 1 || len(clients) != 3 {
			t.Fatalf("%d spans of requests, %d of attempts", len(servers), len(clients))
		}
		q := servers[0]
		if hex.EncodeToString(q.TraceId) != clientsTrace || hex.EncodeToString(q.ParentSpanId) != clientsSpan || q.Name != "GET" {
			t.Errorf("request's span %s", q)
		}
		want(t, "request", q.Attributes, "http.request.method", "GET", "url.path", "/orders/7", "url.scheme", "http", "url.query", "",
			"http.response.status_code", "200", "retryproxy.outcome", "recovered", "retryproxy.attempts", "3", "retryproxy.route", "default",
			"server.address", "127.0.0.1", "client.address", "127.0.0.1", "network.protocol.version", map[bool]string{false: "1.1", true: "2"}[h2], "error.type", "")
		if len(q.Events) != 2 || q.Events[0].Name != "retryproxy.wait" {
			t.Errorf("events %v, want two waits", q.Events)
		} else {
			want(t, "wait", q.Events[0].Attributes, "retryproxy.wait.reason", "status_503")
		}
		for i, a := range clients {
			checkAttempt(t, i, a, q, o)
		}
		want(t, "resource", r.resource, "service.name", "retryproxy", "service.version", "1.2.3")
	})
}

// checkAttempt checks the nth of three attempts; the last one succeeds.
func checkAttempt(t *testing.T, n int, a, request *tracepb.Span, o *origin) {
	t.Helper()
	name := fmt.Sprintf("attempt %d", n)
	if string(a.ParentSpanId) != string(request.SpanId) || string(a.TraceId) != string(request.TraceId) {
		t.Errorf("%s does not hang beneath the request", name)
	}
	if got := o.head(n).Get("Traceparent"); got != parentOf(a)+"01" {
		t.Errorf("%s: the upstream got %q, want %s01", name, got, parentOf(a))
	}
	if got := strings.ReplaceAll(strings.Join(o.head(n)["Tracestate"], ","), " ", ""); got != "a=1,b=2" {
		t.Errorf("%s: tracestate %q", name, got)
	}
	host, port, _ := net.SplitHostPort(o.Listener.Addr().String())
	want(t, name, a.Attributes, "http.request.method", "GET", "url.path", "/orders/7", "server.address", host, "server.port", port,
		"network.peer.address", host, "network.peer.port", port)
	if n < 2 {
		want(t, name, a.Attributes, "http.response.status_code", "503", "error.type", "503", "retryproxy.class", "unknown")
	} else {
		want(t, name, a.Attributes, "http.response.status_code", "200", "error.type", "", "retryproxy.class", "ok")
	}
	if n == 0 {
		want(t, name, a.Attributes, "http.request.resend_count", "", "retryproxy.retry.reason", "")
	} else {
		want(t, name, a.Attributes, "http.request.resend_count", fmt.Sprint(n), "retryproxy.retry.reason", "status_503", "retryproxy.wait.duration", "0.001")
	}
	if a.StartTimeUnixNano < request.StartTimeUnixNano || a.EndTimeUnixNano > request.EndTimeUnixNano || a.EndTimeUnixNano < a.StartTimeUnixNano {
		t.Errorf("%s lasts from %d to %d, the request from %d to %d", name, a.StartTimeUnixNano, a.EndTimeUnixNano, request.StartTimeUnixNano, request.EndTimeUnixNano)
	}
}

func TestAClientThatDoesNotSampleStaysTheParent(t *testing.T) {
	versions(t, func(t *testing.T, h2 bool, scheme string) {
		r := startReceiver(t)
		o := startOrigin(t, status(503), status(200))
		s := start(t, r.URL, o.url(scheme), h2, nil)
		s.ask("/", unsampled, "tracestate: a=1")
		for n := range 2 {
			if got := o.head(n); got.Get("Traceparent") != strings.TrimPrefix(unsampled, "traceparent: ") || got.Get("Tracestate") != "a=1" {
				t.Errorf("attempt %d got %q, %q", n, got["Traceparent"], got["Tracestate"])
			}
		}
		s.ask("/", sampled) // its span arrives first
		if servers, clients := r.spansOf(s, 1); len(servers) != 1 || len(clients) != 1 {
			t.Errorf("%d and %d spans, of which the unsampled request has some", len(servers), len(clients))
		}
	})
}

func TestATraceBeginsHereWithoutOneThatCanBeRead(t *testing.T) {
	for name, fields := range map[string][]string{
		"none":      nil,
		"twice":     {sampled, sampled, "tracestate: a=1"},
		"malformed": {"traceparent: 00-xyz", "tracestate: a=1"},
		"all zero":  {"traceparent: 00-00000000000000000000000000000000-" + clientsSpan + "-01", "tracestate: a=1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startReceiver(t)
			o := startOrigin(t, status(200))
			s := start(t, r.URL, o.url("http"), false, nil)
			s.ask("/", fields...)
			servers, clients := r.spansOf(s, 1)
			if q := servers[0]; len(q.ParentSpanId) != 0 || hex.EncodeToString(q.TraceId) == clientsTrace {
				t.Errorf("request's span %s", q)
			}
			if got := o.head(0); len(got["Traceparent"]) != 1 || got.Get("Traceparent") != parentOf(clients[0])+"01" || got.Get("Tracestate") != "" {
				t.Errorf("the upstream got %q and %q", got["Traceparent"], got["Tracestate"])
			}
		})
	}
}

// One decision applies to the whole trace: a request that is not recorded here is not recorded
// downstream.
func TestTheSamplerOfTheEnvironmentDecides(t *testing.T) {
	r := startReceiver(t)
	o := startOrigin(t, status(200))
	s := start(t, r.URL, o.url("http"), false, nil, "OTEL_TRACES_SAMPLER=parentbased_always_off", "OTEL_SERVICE_NAME=shop")
	s.ask("/")
	if got := o.head(0).Get("Traceparent"); !strings.HasSuffix(got, "-00") || len(got) != 55 {
		t.Errorf("the upstream got %q, want one that is not sampled", got)
	}
	s.ask("/", sampled)
	servers, _ := r.spansOf(s, 1)
	if hex.EncodeToString(servers[0].TraceId) != clientsTrace {
		t.Errorf("request's span %s", servers[0])
	}
	want(t, "resource", r.resource, "service.name", "shop")
}

func TestGRPCCallsAreTraced(t *testing.T) {
	r := startReceiver(t)
	grpc := func(code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", code)
		}
	}
	o := startOrigin(t, grpc("14"), grpc("0"))
	s := start(t, r.URL, o.url("h2c"), true, nil)
	s.ask("/shop.Orders/Get", "Content-Type: application/grpc", "TE: trailers", sampled)
	servers, clients := r.spansOf(s, 1)
	if len(clients) != 2 {
		t.Fatalf("%d attempts", len(clients))
	}
	want(t, "call", servers[0].Attributes, "retryproxy.outcome", "recovered")
	want(t, "retry", clients[1].Attributes, "http.request.resend_count", "1")
	if got := o.head(1).Get("Traceparent"); got != parentOf(clients[1])+"01" {
		t.Errorf("the upstream got %q", got)
	}
}

// hedged sends one request through a proxy that hedges early, and returns the spans of both
// attempts. The one that hangs does so until the test ends.
func hedged(t *testing.T, handlers func(hang http.HandlerFunc) []http.HandlerFunc) (first, second *tracepb.Span, o *origin) {
	t.Helper()
	r := startReceiver(t)
	over := make(chan struct{})
	o = startOrigin(t, handlers(func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-over:
		case <-q.Context().Done():
		}
	})...)
	t.Cleanup(func() { close(over) })
	s := start(t, r.URL, o.url("http"), false, func(c *proxy.Config) {
		after, err := hedge.Parse("5ms")
		if err != nil {
			t.Fatal(err)
		}
		c.Default.HedgeAfter = after
	})
	s.ask("/", sampled)
	_, clients := r.spansOf(s, 1)
	if len(clients) != 2 {
		t.Fatalf("%d attempts", len(clients))
	}
	first, second = clients[0], clients[1]
	if texts(first.Attributes)["retryproxy.hedge"] != "" {
		first, second = second, first
	}
	if o.head(0).Get("Traceparent") != parentOf(first)+"01" || o.head(1).Get("Traceparent") != parentOf(second)+"01" {
		t.Errorf("the upstream got %q and %q", o.head(0).Get("Traceparent"), o.head(1).Get("Traceparent"))
	}
	return first, second, o
}

func TestAHedgeThatWinsHasASpanOfItsOwn(t *testing.T) {
	first, hedge, _ := hedged(t, func(hang http.HandlerFunc) []http.HandlerFunc { return []http.HandlerFunc{hang, status(200)} })
	want(t, "first", first.Attributes, "retryproxy.class", "overtaken", "error.type", "", "http.request.resend_count", "")
	want(t, "hedge", hedge.Attributes, "retryproxy.hedge", "true", "http.request.resend_count", "1", "http.response.status_code", "200")
}

func TestAHedgeThatLosesHasASpanOfItsOwn(t *testing.T) {
	sent := make(chan struct{})
	first, hedge, o := hedged(t, func(hang http.HandlerFunc) []http.HandlerFunc {
		return []http.HandlerFunc{func(http.ResponseWriter, *http.Request) { <-sent }, func(w http.ResponseWriter, q *http.Request) { close(sent); hang(w, q) }}
	})
	want(t, "first", first.Attributes, "retryproxy.class", "ok", "http.response.status_code", "200")
	want(t, "hedge", hedge.Attributes, "retryproxy.hedge", "true", "retryproxy.class", "overtaken", "error.type", "",
		"network.peer.port", fmt.Sprint(o.Listener.Addr().(*net.TCPAddr).Port))
}

func TestAFallbackHasASpanOfItsOwn(t *testing.T) {
	r := startReceiver(t)
	o, spare := startOrigin(t, status(503)), startOrigin(t, status(200))
	s := start(t, r.URL, o.url("http"), false, func(c *proxy.Config) {
		c.Default.Policy.MaxRetries = 0
		c.Default.Fallbacks = []proxy.Fallback{{Upstream: config(t, spare.url("http")).Default.Upstream}}
	})
	if res := s.ask("/", sampled); res.StatusCode != 200 {
		t.Fatalf("answer %d", res.StatusCode)
	}
	_, clients := r.spansOf(s, 1)
	if len(clients) != 2 {
		t.Fatalf("%d attempts", len(clients))
	}
	want(t, "fallback", clients[1].Attributes, "retryproxy.fallback", "true", "server.port", fmt.Sprint(spare.Listener.Addr().(*net.TCPAddr).Port))
	if got := spare.head(0).Get("Traceparent"); got != parentOf(clients[1])+"01" {
		t.Errorf("the fallback upstream got %q", got)
	}
}

func TestFailuresToldOnSpans(t *testing.T) {
	r := startReceiver(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there any more
	s := start(t, r.URL, "http://"+l.Addr().String(), false, nil)
	if res := s.ask("/"); res.StatusCode != 502 {
		t.Fatalf("answer %d", res.StatusCode)
	}
	servers, clients := r.spansOf(s, 1)
	want(t, "request", servers[0].Attributes, "error.type", "502", "retryproxy.outcome", "gave_up_retries_exhausted", "retryproxy.reason", "retries_exhausted")
	want(t, "attempt", clients[0].Attributes, "error.type", "dial", "retryproxy.class", "not_sent", "http.response.status_code", "")
	if servers[0].Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || clients[0].Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("statuses %v and %v", servers[0].Status, clients[0].Status)
	}
}

// A value that cannot be encoded would prevent its whole batch from being sent.
func TestOddMethodsAndPathsAreSent(t *testing.T) {
	r := startReceiver(t)
	o := startOrigin(t, status(200))
	s := start(t, r.URL, o.url("http"), false, nil)
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fmt.Fprintf(nc, "BREW /%s%s HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: close\r\n\r\n", "caf%C3%A9", strings.Repeat("x", 2000))
	if _, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil {
		t.Fatal(err)
	}
	servers, clients := r.spansOf(s, 1)
	want(t, "request", servers[0].Attributes, "http.request.method", "_OTHER", "http.request.method_original", "BREW", "server.address", "::1", "server.port", "8080")
	if n := len(texts(clients[0].Attributes)["url.path"]); n != maxPath {
		t.Errorf("%d bytes of path", n)
	}
	if cut([]byte("a\xffb"), 9) != "a\uFFFDb" {
		t.Error("a text that is not UTF-8 stays so")
	}
}

// A collector that accepts connections and never responds delays nobody, and the number of spans
// that wait for it is limited.
func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	// 1200 spans with a path of half a KiB each would be 600 KiB.
	hangingCollector(t, 512<<10, "OTEL_BSP_EXPORT_TIMEOUT=100", "OTEL_EXPORTER_OTLP_TIMEOUT=100")
}

// The same if a batch is larger than what the kernel's buffers take (at most 4 MiB to send and 6 MiB
// to receive by default), so that even its write blocks, and no limit of the exporter ends it. 37
// batches would be 592 MiB.
func TestACollectorThatNeverReadsHoldsNobodyUp(t *testing.T) {
	const batch = 16 << 20
	hangingCollector(t, 6*batch, "OTEL_RESOURCE_ATTRIBUTES=large="+strings.Repeat("x", batch),
		"OTEL_BSP_EXPORT_TIMEOUT=600000", "OTEL_EXPORTER_OTLP_TIMEOUT=600000")
}

// hangingCollector sends 700 requests whose spans go to a collector that never reads. The heap may
// grow by mostBytes after the first 100, which fill the queue.
func hangingCollector(t *testing.T, mostBytes int64, environ ...string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody responds
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := httptest.NewServer(status(200)) // it stores nothing
	t.Cleanup(o.Close)
	s := start(t, "http://"+l.Addr().String(), o.URL, false, nil, append(environ, "OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=32")...)
	path := "/" + strings.Repeat("x", 4000)
	ask := func(n int) {
		for range n {
			if res := s.ask(path); res.StatusCode != 200 {
				t.Fatalf("answer %d", res.StatusCode)
			}
		}
	}
	ask(100) // the queue is full
	before := heap()
	began := time.Now()
	ask(600)
	if grown := heap() - before; grown > mostBytes {
		t.Errorf("%d bytes more after 600 requests in %v", grown, time.Since(began))
	}
	began = time.Now()
	s.stopShort()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A value of the exporter's variables that cannot be parsed may be a credential.
func TestNoCredentialIsLogged(t *testing.T) {
	core, logged := observer.New(zap.DebugLevel)
	for _, headers := range []string{"Authorization: Bearer S3CRET", "authorization=Bearer%20S3CRET%zz", "a=b,Bearer S3CRET", "S3CRET\x01=b"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
		tr, err := Start(t.Context(), "1.2.3", zap.New(core))
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		all := logged.TakeAll()
		if len(all) == 0 {
			t.Errorf("%q: nothing is said", headers)
		}
		for _, entry := range all {
			if s := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(s, "S3CRET") {
				t.Errorf("%q: %s", headers, s)
			}
		}
	}
}

func TestALongTracestateIsNotKept(t *testing.T) {
	parent := []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	state := func(n int) []byte {
		return []byte("a=" + strings.Repeat("x", 200) + ",b=" + strings.Repeat("y", 200) + ",c=" + strings.Repeat("z", n-408))
	}
	if s := clientsContext(parent, state(longestState)); !s.IsValid() || s.TraceState().Len() != 3 {
		t.Errorf("%d members of one that fits", s.TraceState().Len())
	}
	if s := clientsContext(parent, state(longestState+1)); !s.IsValid() || s.TraceState().Len() != 0 {
		t.Errorf("valid %v, %d members of one that is too long", s.IsValid(), s.TraceState().Len())
	}
}

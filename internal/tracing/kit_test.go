package tracing

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is an OTLP/HTTP collector that keeps what it receives.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*tracepb.Span
	resource []*common.KeyValue
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", q.URL.Path, q.Header.Get("Content-Type"), err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, rs := range request.ResourceSpans {
			r.resource = rs.Resource.Attributes
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// stage is a proxy with tracing in front of an upstream.
type stage struct {
	t       *testing.T
	tracing *Tracing
	addr    string
	client  *http.Client
	stopped bool
}

// start runs a proxy that sends its spans to endpoint only at its end; environ are additional
// OTEL_* variables.
func start(t *testing.T, endpoint, upstreamURL string, h2 bool, change func(c *proxy.Config), environ ...string) *stage {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	tr, err := Start(context.Background(), "1.2.3", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, tracing: tr}
	c := config(t, upstreamURL)
	c.Tracer = tr
	if change != nil {
		change(c)
	}
	s.serve(c)
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetUnencryptedHTTP2(h2)
	s.client = &http.Client{Transport: transport, Timeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

func (s *stage) serve(c *proxy.Config) {
	server, err := proxy.New(c)
	if err == nil {
		err = server.Listen()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = server.Addrs()[0].String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		<-done
		s.flush()
		if n := server.Stats().Faults; n != 0 {
			s.t.Errorf("%d faults of the proxy itself", n)
		}
	})
}

func config(t *testing.T, upstreamURL string) *proxy.Config {
	target, err := upstream.ParseTarget(upstreamURL)
	if err != nil {
		t.Fatal(err)
	}
	on, err := policy.ParseRetryOn("5xx,connect-failure,reset,grpc-unavailable")
	if err != nil {
		t.Fatal(err)
	}
	backoff, err := backoff.New("fixed", backoff.Options{Base: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return &proxy.Config{
		Listen: []string{"127.0.0.1:0"},
		Default: proxy.Route{
			Name: "default", Upstream: target,
			Policy:   policy.Policy{RetryOn: on, MaxRetries: 2, Backoff: backoff},
			NoBudget: true, RequestTimeout: 30 * time.Second, BodyIdleTimeout: 10 * time.Second,
			RetryBufferBytes: 1 << 20, ResponseBufferBytes: 1 << 16, QueueMax: 100, QueueTimeout: time.Second,
			Guard: breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitOff},
		},
		Limits:            http1.Limits{HeaderBytes: 64 << 10, Headers: 100},
		ReadHeaderTimeout: 5 * time.Second, ClientIdleTimeout: 30 * time.Second, WriteTimeout: 10 * time.Second,
		MaxConcurrentStreams: 100, RetryBufferTotalBytes: 1 << 20, DrainTimeout: 5 * time.Second,
	}
}

// flush sends all spans, once.
func (s *stage) flush() {
	if s.stopped {
		return
	}
	s.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.tracing.Shutdown(ctx); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
}

// stopShort ends tracing with half a second left, whatever has been sent.
func (s *stage) stopShort() {
	s.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_ = s.tracing.Shutdown(ctx)
}

// ask sends a request with the given headers and reads its response. The request's span ends after
// the response has arrived.
func (s *stage) ask(path string, fields ...string) *http.Response {
	s.t.Helper()
	q, err := http.NewRequest("GET", "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		q.Header.Add(name, value)
	}
	res, err := s.client.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	return res
}

// spansOf waits until every request's span has ended, flushes, and returns the spans by kind.
func (r *receiver) spansOf(s *stage, requests int) (servers, clients []*tracepb.Span) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if s.flushSome(); r.ended() >= requests {
			break
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d requests' spans, want %d", r.ended(), requests)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.spans {
		if span.Kind == tracepb.Span_SPAN_KIND_SERVER {
			servers = append(servers, span)
		} else {
			clients = append(clients, span)
		}
	}
	return servers, clients
}

func (s *stage) flushSome() {
	if err := s.tracing.provider.ForceFlush(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// ended returns the number of requests whose spans were received.
func (r *receiver) ended() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.spans {
		if span.Kind == tracepb.Span_SPAN_KIND_SERVER {
			n++
		}
	}
	return n
}

// texts returns a span's attributes as text.
func texts(all []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		default:
			m[a.Key] = strings.TrimSpace(strings.SplitN(a.Value.String(), ":", 2)[1])
		}
	}
	return m
}

// want checks some attributes; "" means that the attribute must be absent.
func want(t *testing.T, what string, all []*common.KeyValue, pairs ...string) {
	t.Helper()
	got := texts(all)
	for i := 0; i < len(pairs); i += 2 {
		if got[pairs[i]] != pairs[i+1] {
			t.Errorf("%s: %s is %q, want %q (of %v)", what, pairs[i], got[pairs[i]], pairs[i+1], got)
		}
	}
}

// origin is an application that answers by script and keeps the request headers that it receives.
type origin struct {
	*httptest.Server
	mu    sync.Mutex
	heads []http.Header
}

// startOrigin answers the nth request (from 0) with the nth handler, or the last one.
func startOrigin(t *testing.T, handlers ...http.HandlerFunc) *origin {
	t.Helper()
	o := &origin{}
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		n := len(o.heads)
		o.heads = append(o.heads, r.Header.Clone())
		o.mu.Unlock()
		handlers[min(n, len(handlers)-1)](w, r)
	}))
	o.Config.Protocols = &http.Protocols{}
	o.Config.Protocols.SetHTTP1(true)
	o.Config.Protocols.SetUnencryptedHTTP2(true)
	o.Start()
	t.Cleanup(o.Close)
	return o
}

func (o *origin) head(n int) http.Header {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n >= len(o.heads) {
		return http.Header{}
	}
	return o.heads[n]
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// parentOf returns the traceparent of a span.
func parentOf(s *tracepb.Span) string {
	return "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-"
}

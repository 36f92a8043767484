// Package tracing makes OpenTelemetry spans of requests and attempts and sends them by OTLP
// over HTTP.
//
// Call Start; it returns a proxytrace.Tracer. Only the program retryproxy-otel contains
// this package, since the SDK and the exporter use memory even if they are not used; see
// docs/decisions/0018-small-sidecar.md.
//
// The SDK and the exporter read their OTEL_* variables from the process's environment.
// Spans wait in the SDK's queue (OTEL_BSP_MAX_QUEUE_SIZE) for the SDK's goroutine that
// sends them. If the queue is full, spans are dropped, so this package never waits for a
// collector.
package tracing

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
)

// Tracing implements proxytrace.Tracer. It is safe for concurrent use.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	reporter *reporter
}

// scope is the instrumentation scope of the spans.
const scope = "github.com/retryproxy/retryproxy"

// Start begins to collect and send spans. version is retryproxy's own. It logs later
// errors, such as an unreachable collector, at most once a minute. The caller must call
// Shutdown.
func Start(ctx context.Context, version string, log *zap.Logger) (*Tracing, error) {
	report := newReporter(log)
	otel.SetErrorHandler(report)
	otel.SetLogger(funcr.New(func(_, args string) { log.Warn("OpenTelemetry", zap.String("says", args)) }, funcr.Options{Verbosity: 1, RenderArgsHook: withoutValues}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTLP exporter: %w", err)
	}
	// Later options override earlier ones: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "retryproxy"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: expected key=value, separated by commas: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &Tracing{provider: provider, tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(version)), reporter: report}, nil
}

// Shutdown sends what is queued and stops; ctx limits it.
func (t *Tracing) Shutdown(ctx context.Context) error {
	defer t.reporter.bound.Flush()
	return t.provider.Shutdown(ctx)
}

// reporter logs errors of the SDK: the first of each minute. A collector that is down fails
// every five seconds; the other errors are only counted.
type reporter struct {
	log   *zap.Logger
	bound *boundedlog.Limiter
}

func newReporter(log *zap.Logger) *reporter {
	r := &reporter{log: log}
	r.bound = boundedlog.New(1, r.tell)
	return r
}

// Handle implements otel.ErrorHandler. It is safe for concurrent use.
func (r *reporter) Handle(err error) {
	if r.bound.Allow() {
		r.log.Warn("OpenTelemetry reports an error; requests are not affected", zap.Error(err))
	}
}

func (r *reporter) tell(suppressed int) {
	r.log.Warn("more errors of OpenTelemetry, lines suppressed", zap.Int("count", suppressed))
}

// withoutValues removes values that the exporter could not parse:
// OTEL_EXPORTER_OTLP_HEADERS contains credentials.
func withoutValues(kv []any) []any {
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i] == "input" || kv[i] == "value" || kv[i] == "key" {
			kv[i+1] = "(left out)"
		}
	}
	return kv
}

// longestState is the maximum length of a tracestate that is kept while a span is queued:
// the minimum of W3C Trace Context section 3.3.1.5. A longer one is dropped.
const longestState = 512

// clientsContext returns the span context that the client sent; it is not valid if there is
// none or it cannot be parsed.
func clientsContext(parent, state []byte) trace.SpanContext {
	if parent == nil {
		return trace.SpanContext{}
	}
	if len(state) > longestState {
		state = nil
	}
	c := propagation.MapCarrier{"traceparent": string(parent), "tracestate": string(state)}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), c))
}

// fields returns a span's context as the two headers.
func fields(s trace.SpanContext) (parent, state string) {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s), c)
	return c["traceparent"], c["tracestate"]
}

// wall converts times of a clock that was read at the start of the process, and has run
// monotonically since, to the current wall clock.
type wall struct{ off time.Duration }

// wallAt returns the conversion for the clock by which began was read.
func wallAt(began time.Time) wall {
	now := time.Now()
	return wall{now.Round(0).Sub(began.Round(0)) - now.Sub(began)}
}

func (w wall) of(t time.Time) time.Time { return t.Round(0).Add(w.off) }

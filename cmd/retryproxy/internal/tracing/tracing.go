// Package tracing makes OpenTelemetry spans of requests and attempts and sends
// them by OTLP over HTTP.
//
// Start is all there is to call; what it gives is a proxy.Tracer. It is in the
// program retryproxy-otel only, since the SDK and the exporter cost memory even
// where they are never used; see docs/decisions/0018-traces.md.
//
// The SDK and the exporter read their OTEL_* variables from the process's
// environment themselves. Spans wait in a queue of the SDK's
// (OTEL_BSP_MAX_QUEUE_SIZE) for a goroutine of the SDK's that sends them; what
// finds it full is left out, so nothing here ever waits for a collector.
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
)

// Tracing is a proxy.Tracer. It is safe for concurrent use.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	reporter *reporter
}

// scope names what makes the spans.
const scope = "github.com/retryproxy/retryproxy"

// Start begins to collect and send spans. version is retryproxy's own. What goes
// wrong later, such as a collector that is not there, goes to log, a line a
// minute at most. The client ends it by Shutdown.
func Start(ctx context.Context, version string, log *zap.Logger) (*Tracing, error) {
	report := newReporter(log)
	otel.SetErrorHandler(report)
	otel.SetLogger(funcr.New(func(_, args string) { log.Warn("OpenTelemetry", zap.String("says", args)) }, funcr.Options{Verbosity: 1, RenderArgsHook: withoutValues}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTLP exporter: %w", err)
	}
	// What comes later overrides: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "retryproxy"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: expected key=value, separated by commas: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &Tracing{provider: provider, tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(version)), reporter: report}, nil
}

// Shutdown sends what is queued and stops; ctx bounds it.
func (t *Tracing) Shutdown(ctx context.Context) error {
	defer t.reporter.bound.Flush()
	return t.provider.Shutdown(ctx)
}

// withoutValues leaves out what the exporter could not read of its variables:
// OTEL_EXPORTER_OTLP_HEADERS holds credentials.
func withoutValues(kv []any) []any {
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i] == "input" || kv[i] == "value" || kv[i] == "key" {
			kv[i+1] = "(left out)"
		}
	}
	return kv
}

// carrier are the two fields of W3C Trace Context.
type carrier struct{ parent, state string }

// Get is part of propagation.TextMapCarrier.
func (c *carrier) Get(key string) string {
	switch key {
	case "traceparent":
		return c.parent
	case "tracestate":
		return c.state
	}
	return ""
}

// Set is part of propagation.TextMapCarrier.
func (c *carrier) Set(key, value string) {
	switch key {
	case "traceparent":
		c.parent = value
	case "tracestate":
		c.state = value
	}
}

// Keys is part of propagation.TextMapCarrier.
func (c *carrier) Keys() []string { return []string{"traceparent", "tracestate"} }

// longestState is how much of a tracestate is kept, while a span waits to be
// sent: what W3C Trace Context section 3.3.1.5 wants kept at least. A longer one is left out.
const longestState = 512

// clientsContext is the span that the client says it is in; not valid when it
// says none or nothing that can be read.
func clientsContext(parent, state []byte) trace.SpanContext {
	if parent == nil {
		return trace.SpanContext{}
	}
	if len(state) > longestState {
		state = nil
	}
	c := carrier{string(parent), string(state)}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), &c))
}

// fields writes a span's context as the two fields.
func fields(s trace.SpanContext) (parent, state string) {
	var c carrier
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s), &c)
	return c.parent, c.state
}

// wall turns times of a clock that was read at the start of the process, and
// has run monotonically since, into those of the wall clock as it is now.
type wall struct{ off time.Duration }

// wallAt is the clock by which began was read.
func wallAt(began time.Time) wall {
	now := time.Now()
	return wall{now.Round(0).Sub(began.Round(0)) - now.Sub(began)}
}

func (w wall) of(t time.Time) time.Time { return t.Round(0).Add(w.off) }

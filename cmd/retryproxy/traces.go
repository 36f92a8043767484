package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/beside"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
	"github.com/retryproxy/retryproxy/proxy"
)

// A program with OpenTelemetry in it is larger at rest even where it makes no
// spans, so there are two: retryproxy, and retryproxy-otel, built from the same
// files with the tag otel. See docs/decisions/0018-traces.md.
const tracingProgram = "retryproxy-otel"

// tracer is what startTracing gives.
type tracer interface {
	proxy.Tracer
	// Shutdown sends what is queued, as long as ctx allows.
	Shutdown(ctx context.Context) error
}

const (
	otlpEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// tracesAsked gives the variable that says where spans go, "" when none are
// wanted or it names no place.
func tracesAsked(getenv func(string) string) string {
	if tracesOff(getenv) {
		return ""
	}
	name := tracesVariable(getenv)
	if !isEndpoint(getenv(name)) {
		return ""
	}
	return name
}

func tracesOff(getenv func(string) string) bool {
	return strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none"
}

// tracesVariable is the variable that names the collector, right or wrong; ""
// if none does.
func tracesVariable(getenv func(string) string) string {
	for _, name := range []string{otlpTracesEndpoint, otlpEndpoint} {
		if getenv(name) != "" {
			return name
		}
	}
	return ""
}

// isEndpoint reports whether spans can be sent to an endpoint: localhost:4317
// would be taken for a URL of the scheme "localhost", and sent to nowhere.
func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

// traceProblems are warnings about the variables for traces: an environment made for a
// whole Pod must not keep the proxy from starting.
func traceProblems(o *outside) (found settings.Problems) {
	if tracesOff(o.getenv) {
		return nil
	}
	name := tracesVariable(o.getenv)
	if name == "" {
		return nil
	}
	warn := func(variable, message string) {
		found = append(found, settings.Problem{Variable: variable, Value: settings.Mask(o.getenv(variable)), Message: message, Warning: true})
	}
	if !isEndpoint(o.getenv(name)) {
		warn(name, "no spans are made: expected a URL such as http://localhost:4318")
		return found
	}
	if !hasTracing && otherWithTracing() == "" {
		warn(name, "this program makes no spans; expected "+tracingProgram+" beside it or in PATH, to be run in its place (docs/traces.md)")
	}
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if o.getenv(variable) == "grpc" {
			warn(variable, "expected http/protobuf or http/json; spans are sent as http/protobuf, for which collectors mostly use port 4318")
		}
	}
	if v := o.getenv("OTEL_TRACES_EXPORTER"); v != "" && v != "otlp" {
		warn("OTEL_TRACES_EXPORTER", "expected otlp or none; spans are sent by OTLP")
	}
	return found
}

// otherWithTracing finds the other program; "" where it is not there, or is us:
// one that was only given the name.
func otherWithTracing() string {
	if self, err := os.Executable(); err != nil || filepath.Base(self) == tracingProgram {
		return ""
	}
	path, err := beside.Find(tracingProgram)
	if err != nil {
		return ""
	}
	return path
}

// becomeTracing runs the program with tracing in place of this one, when spans
// are wanted and it is there. It returns when it does not, with why.
func becomeTracing(c *call) error {
	if hasTracing || c.become == nil || tracesAsked(c.getenv) == "" {
		return nil
	}
	if path := otherWithTracing(); path != "" {
		return c.become(path, append([]string{path}, c.outside.args...), c.env)
	}
	return nil
}

// How long the last spans may take to be sent. flushMost bounds a collector that
// does not answer, flushLeast is given even when the drain took all of its time.
const (
	flushMost  = 5 * time.Second
	flushLeast = 500 * time.Millisecond
)

// startTracing starts tracing where it is asked for.
func (a *app) startTracing() error {
	if !hasTracing || tracesAsked((&outside{env: a.env}).getenv) == "" {
		return nil
	}
	t, err := startTracing(context.Background(), build().Version, a.log.Named("traces"))
	a.tracer = t
	return err
}

// endTracing sends the last spans, until the drain's time is over.
func (a *app) endTracing() {
	if a.tracer == nil {
		return
	}
	limit := flushMost
	if !a.drainedBy.IsZero() {
		limit = min(max(time.Until(a.drainedBy), flushLeast), flushMost)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := a.tracer.Shutdown(ctx); err != nil {
		a.log.Warn("not all spans could be sent", zap.Error(err))
	}
}

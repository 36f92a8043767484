package serve

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/config"
	proxytrace "github.com/retryproxy/retryproxy/proxy/trace"
)

// TracingProgram is the name of the program with OpenTelemetry. That needs more memory even
// without spans, so there are two programs: retryproxy, and retryproxy-otel, built from the
// same files with the tag otel. See docs/decisions/0018-small-sidecar.md.
const TracingProgram = "retryproxy-otel"

// tracer is the result of startTracing.
type tracer interface {
	proxytrace.Tracer
	// Shutdown sends what is queued, as long as ctx allows.
	Shutdown(ctx context.Context) error
}

const (
	otlpEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// tracesVariable returns the variable that names the collector, valid or not; "" if no spans are
// wanted.
func tracesVariable(getenv func(string) string) string {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return ""
	}
	for _, name := range []string{otlpTracesEndpoint, otlpEndpoint} {
		if getenv(name) != "" {
			return name
		}
	}
	return ""
}

// tracesWanted reports whether spans are wanted and can be sent.
func tracesWanted(getenv func(string) string) bool {
	name := tracesVariable(getenv)
	return name != "" && isEndpoint(getenv(name))
}

// isEndpoint reports whether spans can be sent to an endpoint: localhost:4317 would be
// parsed as a URL with the scheme "localhost".
func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

// traceProblems returns what is wrong with the variables for traces. Most are warnings, because a
// variable set for a whole Pod must not keep the proxy from starting. Traces that were asked for by
// name (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) and cannot be made are an error. See
// docs/decisions/0018-small-sidecar.md.
func traceProblems(getenv func(string) string) (found config.Problems) {
	name := tracesVariable(getenv)
	if name == "" {
		return nil
	}
	add := func(variable, message string, warning bool) {
		found = append(found, config.Problem{Variable: variable, Value: config.Mask(getenv(variable)), Message: message, Warning: warning})
	}
	warn := func(variable, message string) { add(variable, message, true) }
	generic := name == otlpEndpoint
	if !isEndpoint(getenv(name)) {
		add(name, "no traces are sent: expected a URL such as http://localhost:4318", generic)
		return found
	}
	if !hasTracing && otherWithTracing() == "" {
		add(name, "this program cannot send traces; expected "+TracingProgram+" beside it or in PATH, to be run in its place, or the image made by make image-full (docs/how-to/traces.md)", generic)
	}
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if getenv(variable) == "grpc" {
			warn(variable, "expected http/protobuf or http/json; spans are sent as http/protobuf, for which collectors mostly use port 4318")
		}
	}
	if v := getenv("OTEL_TRACES_EXPORTER"); v != "" && v != "otlp" {
		warn("OTEL_TRACES_EXPORTER", "expected otlp or none; spans are sent by OTLP")
	}
	return found
}

// otherWithTracing returns the path of the program with tracing; "" if it is missing, or if
// this program has its name.
func otherWithTracing() string {
	if self, err := os.Executable(); err != nil || filepath.Base(self) == TracingProgram {
		return ""
	}
	path, err := findProgram(TracingProgram)
	if err != nil {
		return ""
	}
	return path
}

// findProgram returns the path of the program: in the directory of this executable, or else in PATH.
// The error is that of exec.LookPath.
func findProgram(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return found, nil
		}
	}
	return exec.LookPath(name)
}

// BecomeTracing replaces this program with the one with tracing, if spans are wanted and it
// exists. It returns nil if there is nothing to do, and otherwise the error. become replaces this
// process; nil means never.
func BecomeTracing(become func(program string, args, env []string) error, args, env []string, getenv func(string) string) error {
	if hasTracing || become == nil || !tracesWanted(getenv) {
		return nil
	}
	if path := otherWithTracing(); path != "" {
		return become(path, append([]string{path}, args...), env)
	}
	return nil
}

// Limits of the time to send the last spans. flushMost limits the wait for a collector that
// does not respond. flushLeast applies even if the drain took all of its time.
const (
	flushMost  = 5 * time.Second
	flushLeast = 500 * time.Millisecond
)

// startTracing starts tracing if it is wanted.
func (a *app) startTracing() error {
	if !hasTracing || !tracesWanted(a.options.Getenv) {
		return nil
	}
	t, err := startTracing(context.Background(), a.options.Build.Version, a.log.Named("traces"))
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
		a.log.Warn("not all traces could be sent", zap.Error(err))
	}
}

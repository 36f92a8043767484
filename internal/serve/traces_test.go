package serve

import (
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
)

func getenvOf(env ...string) func(string) string {
	return func(name string) string {
		for _, entry := range env {
			if n, value, _ := strings.Cut(entry, "="); n == name {
				return value
			}
		}
		return ""
	}
}

func TestWhenTracesAreWanted(t *testing.T) {
	for _, tc := range []struct {
		env  string
		want bool
	}{
		{"", false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=", false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", true},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/t", true},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_SDK_DISABLED=TRUE", false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_EXPORTER=none", false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4317", false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=https://", false},
		{"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=http://c:4318", false},
	} {
		if got := tracesWanted(getenvOf(strings.Fields(tc.env)...)); got != tc.want {
			t.Errorf("%s: %v", tc.env, got)
		}
	}
}

func TestAnEndpointThatIsNoURLIsAWarning(t *testing.T) {
	for _, endpoint := range []string{"localhost:4317", "c", "grpc://c:4317", "http://", "https:///v1/traces"} {
		found := traceProblems(getenvOf("OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint))
		if len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].String(), "no traces are sent") || found[0].Variable != otlpEndpoint {
			t.Errorf("%s: %v", endpoint, found)
		}
	}
}

// A user who sets the endpoint of traces wants traces. If they are impossible, that is an error that
// names the program and the image that provide them.
func TestTracesThatAreAskedForByNameAndCannotBeMadeAreAnError(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	found := traceProblems(getenvOf("OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=localhost:4318"))
	if len(found) != 1 || found[0].Warning || found[0].Variable != otlpTracesEndpoint {
		t.Errorf("%v", found)
	}
	found = traceProblems(getenvOf("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces"))
	if hasTracing {
		if len(found) != 0 {
			t.Errorf("%v", found)
		}
		return
	}
	if len(found) != 1 || found[0].Warning || !strings.Contains(found[0].Message, TracingProgram) || !strings.Contains(found[0].Message, "make image-full") {
		t.Fatalf("%v", found)
	}
	err := Run(t.Context(), Options{Env: []string{"RETRYPROXY_UPSTREAM=http://localhost:1"}, Getenv: getenvOf("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces")})
	if problems := config.ProblemsOf(err); len(problems) != 1 || problems[0].Variable != otlpTracesEndpoint {
		t.Errorf("started, or failed with %v", err)
	}
	if found := traceProblems(getenvOf("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces", "OTEL_TRACES_EXPORTER=none")); found != nil {
		t.Errorf("off, and yet %v", found)
	}
}

// An environment set for a whole Pod must not keep the proxy from starting.
func TestWhatIsWrongWithTracesIsAWarning(t *testing.T) {
	getenv := getenvOf("OTEL_EXPORTER_OTLP_ENDPOINT=http://u:p@c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_TRACES_EXPORTER=zipkin")
	t.Setenv("PATH", t.TempDir())
	var variables []string
	for _, p := range traceProblems(getenv) {
		variables = append(variables, p.Variable)
		if !p.Warning || strings.Contains(p.String(), "u:p") {
			t.Errorf("%s, warning %v", p, p.Warning)
		}
	}
	want := []string{otlpEndpoint, "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_EXPORTER"}
	if hasTracing {
		want = want[1:]
	}
	if !slices.Equal(variables, want) {
		t.Errorf("warnings about %v, want %v", variables, want)
	}
}

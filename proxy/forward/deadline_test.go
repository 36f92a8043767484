package forward

import (
	"github.com/retryproxy/retryproxy/proxy/wire"
	"strings"
	"testing"
	"time"
)

func deadlineOf(t testing.TB, headers ...string) Deadline {
	t.Helper()
	var d Deadline
	d.Read(parseRequest(t, headerLines(append([]string{"GET / HTTP/1.1", "Host: a"}, headers...)...)))
	return d
}

func TestADeadlineIsReadInItsOwnNotation(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"X-Request-Timeout: 5":                       5 * time.Second,
		"X-Request-Timeout: 2.5":                     2500 * time.Millisecond,
		"x-request-timeout: 0.001":                   time.Millisecond,
		"X-Request-Timeout: 1.0000009":               time.Second, // digits beyond the sixth are read, no more
		"X-Request-Timeout: 1500ms":                  1500 * time.Millisecond,
		"X-Request-Timeout: 1.5s":                    1500 * time.Millisecond,
		"X-Request-Timeout: 20us":                    20 * time.Microsecond,
		"X-Request-Timeout: 7ns":                     7,
		"X-Request-Timeout: 2m":                      2 * time.Minute,
		"X-Request-Timeout: 1.999999h":               2*time.Hour - 3600*time.Microsecond,
		"X-Request-Timeout: 9223372036854775807h":    maxDeadline,
		"X-Request-Timeout: 9223372036854775807":     maxDeadline,
		"grpc-timeout: 1H":                           time.Hour,
		"Grpc-Timeout: 2M":                           2 * time.Minute,
		"grpc-timeout: 30S":                          30 * time.Second,
		"grpc-timeout: 100m":                         100 * time.Millisecond,
		"grpc-timeout: 99999999u":                    99999999 * time.Microsecond,
		"grpc-timeout: 00000001n":                    1,
		"grpc-timeout: 0n":                           0,
		"grpc-timeout: 99999999H":                    maxDeadline,
		"x-stainless-timeout: 600":                   10 * time.Minute,
		"X-Stainless-Read-Timeout: 2.5":              2500 * time.Millisecond,
		"x-envoy-expected-rq-timeout-ms: 250":        250 * time.Millisecond,
		"x-envoy-expected-rq-timeout-ms: 9999999999": 9999999999 * time.Millisecond,
	} {
		d := deadlineOf(t, header)
		if !d.Given || d.Timeout != want || d.Malformed != 0 {
			t.Errorf("%s: %+v, want %v", header, d, want)
		}
	}
}

func TestWhatIsNoDeadlineIsNamedAndGoesThrough(t *testing.T) {
	for header, bad := range map[string]DeadlineHeader{
		"X-Request-Timeout: 0":                         DeadlineRequest, // no limit at all, some mean by it
		"X-Request-Timeout: 0.0000001":                 DeadlineRequest,
		"X-Request-Timeout: -1":                        DeadlineRequest,
		"X-Request-Timeout: +1":                        DeadlineRequest,
		"X-Request-Timeout:":                           DeadlineRequest,
		"X-Request-Timeout: .5":                        DeadlineRequest,
		"X-Request-Timeout: 5.":                        DeadlineRequest,
		"X-Request-Timeout: 5.s":                       DeadlineRequest,
		"X-Request-Timeout: 1m30s":                     DeadlineRequest,
		"X-Request-Timeout: 5 s":                       DeadlineRequest,
		"X-Request-Timeout: 5S":                        DeadlineRequest,
		"X-Request-Timeout: 1e3":                       DeadlineRequest,
		"X-Request-Timeout: 9223372036854775808":       DeadlineRequest,
		"X-Request-Timeout: soon":                      DeadlineRequest,
		"grpc-timeout: 1":                              DeadlineGRPC,
		"grpc-timeout: S":                              DeadlineGRPC,
		"grpc-timeout:":                                DeadlineGRPC,
		"grpc-timeout: 123456789n":                     DeadlineGRPC, // nine digits
		"grpc-timeout: 5s":                             DeadlineGRPC,
		"grpc-timeout: -5S":                            DeadlineGRPC,
		"grpc-timeout: 1.5S":                           DeadlineGRPC,
		"x-envoy-expected-rq-timeout-ms: 0":            DeadlineEnvoy,
		"x-envoy-expected-rq-timeout-ms: 1.5":          DeadlineEnvoy,
		"x-envoy-expected-rq-timeout-ms: 1000ms":       DeadlineEnvoy,
		"x-envoy-expected-rq-timeout-ms: -1":           DeadlineEnvoy,
		"X-Envoy-Expected-Rq-Timeout-Ms: \u0664\u0665": DeadlineEnvoy,
	} {
		d := deadlineOf(t, header)
		if d.Given || d.Malformed != DeadlineSet(0).With(bad) {
			t.Errorf("%s: %+v, want only %s bad", header, d, bad)
		}
		section := string(AppendRequestHeaders(nil, parseRequest(t, headerLines("GET / HTTP/1.1", "Host: a", header)), &Settings{}, &nobody, nil, nil))
		if name, value, _ := strings.Cut(header, ":"); !strings.Contains(section, "\r\n"+name+": "+strings.TrimSpace(value)+"\r\n") {
			t.Errorf("%s is not in %q", header, section)
		}
		if got := string(d.Append(wire.Lines, nil, time.Second)); got != "" {
			t.Errorf("%s: %q was added", header, got)
		}
	}
}

func TestTheShortestDeadlineCounts(t *testing.T) {
	d := deadlineOf(t, "X-Request-Timeout: 5", "Grpc-Timeout: 2S", "X-Request-Timeout: 7", "X-Envoy-Expected-Rq-Timeout-Ms: 3000")
	if d.Timeout != 2*time.Second {
		t.Errorf("within %v, want 2s", d.Timeout)
	}
	want := "X-Request-Timeout: 1.500\r\ngrpc-timeout: 1500000u\r\nx-envoy-expected-rq-timeout-ms: 1500\r\n"
	compare(t, string(d.Append(wire.Lines, nil, 1500*time.Millisecond)), want)
}

func TestTimeLeftIsWrittenAsTheClientWroteIt(t *testing.T) {
	for _, c := range []struct {
		field string
		left  time.Duration
		want  string
	}{
		{"X-Request-Timeout: 5", 4 * time.Second, "X-Request-Timeout: 4"},
		{"X-Request-Timeout: 5", 4987654 * time.Microsecond, "X-Request-Timeout: 4.987"},
		{"X-Request-Timeout: 5", 1002 * time.Millisecond, "X-Request-Timeout: 1.002"},
		{"X-Request-Timeout: 5", 5, "X-Request-Timeout: 0.001"},
		{"X-Request-Timeout: 5", -time.Second, "X-Request-Timeout: 0.001"},
		{"X-Request-Timeout: 5s", 4 * time.Second, "X-Request-Timeout: 4000ms"},
		{"X-Request-Timeout: 1h", time.Minute, "X-Request-Timeout: 60000ms"},
		{"grpc-timeout: 1H", 5, "grpc-timeout: 5n"},
		{"grpc-timeout: 1H", 99999999, "grpc-timeout: 99999999n"},
		{"grpc-timeout: 1H", 100000999, "grpc-timeout: 100000u"},
		{"grpc-timeout: 1H", 100*time.Second - 1, "grpc-timeout: 99999999u"},
		{"grpc-timeout: 1H", 100 * time.Second, "grpc-timeout: 100000m"},
		{"grpc-timeout: 1H", 100000*time.Second - 1, "grpc-timeout: 99999999m"},
		{"grpc-timeout: 1H", 100000 * time.Second, "grpc-timeout: 100000S"},
		{"grpc-timeout: 1H", 1 << 62, "grpc-timeout: 31536000S"},
		{"grpc-timeout: 1H", 0, "grpc-timeout: 1n"},
		{"x-envoy-expected-rq-timeout-ms: 9", 1999 * time.Microsecond, "x-envoy-expected-rq-timeout-ms: 1"},
		{"x-envoy-expected-rq-timeout-ms: 9", 1, "x-envoy-expected-rq-timeout-ms: 1"},
	} {
		d := deadlineOf(t, c.field)
		compare(t, string(d.Append(wire.Lines, nil, c.left)), c.want+"\r\n")
	}
}

func TestGRPCIsKnownByItsContentType(t *testing.T) {
	for value, want := range map[string]bool{
		"application/grpc":              true,
		"Application/GRPC+proto":        true,
		"application/grpc;charset=a":    true,
		"application/grpc ; a=b":        true,
		"application/grpc-web":          false,
		"application/grpc-web+proto":    false,
		"application/grpcx":             false,
		"application/grp":               false,
		"text/plain, application/grpc+": false,
		"":                              false,
	} {
		if d := deadlineOf(t, "Content-Type: "+value); d.GRPC != want {
			t.Errorf("%q: %v, want %v", value, d.GRPC, want)
		}
	}
}

// What is sent on is never more than what was left, and is read by a proxy
// after us as nearly the same.
func FuzzDeadline(f *testing.F) {
	for _, seed := range []string{"5", "2.5", "1500ms", "1H", "99999999S", "100u", "0n", "250", "9223372036854775807", "1.9999999999h", ""} {
		f.Add(seed, int64(3*time.Second))
	}
	f.Fuzz(func(t *testing.T, value string, left int64) {
		for which := range DeadlineHeader(NumDeadlineHeaders) {
			var d Deadline
			d.note(which, []byte(value))
			if !d.Given {
				continue
			}
			if d.Timeout < 0 || d.Timeout > maxDeadline {
				t.Fatalf("%s %q: within %v", which, value, d.Timeout)
			}
			if which >= DeadlineStainless { // forwarded as received
				continue
			}
			out := string(d.Append(wire.Lines, nil, time.Duration(left)))
			_, sent, _ := strings.Cut(strings.TrimSuffix(out, "\r\n"), ": ")
			reread, _, ok := readDeadline(which, []byte(sent))
			bound := max(min(time.Duration(left), maxDeadline), time.Millisecond)
			if !ok || reread > bound || reread < bound-bound/1000-time.Millisecond {
				t.Fatalf("%s %q with %v left: %q reads as %v", which, value, time.Duration(left), out, reread)
			}
		}
	})
}

func TestDeadlinesDoNotAllocate(t *testing.T) {
	r := parseRequest(t, headerLines("GET / HTTP/1.1", "Host: a", "X-Request-Timeout: 2.5", "Grpc-Timeout: 5S", "X-Envoy-Expected-Rq-Timeout-Ms: 4000", "Content-Type: application/grpc"))
	var d Deadline
	dst := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		d.Read(r)
		dst = d.Append(wire.Lines, dst[:0], 1234567890)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

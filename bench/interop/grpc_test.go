package interop

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// cases are those of the interoperability client that need no cloud and no
// server of their own (grpc/doc/interop-test-descriptions.md).
var cases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "timeout_on_sleeping_server",
	"cancel_after_begin", "cancel_after_first_response", "status_code_and_message", "special_status_message", "custom_metadata",
	"unimplemented_method", "unimplemented_service",
}

// retrying lets every call be retried that surely did nothing. The budget is
// as large as a third of all streams being refused needs, and so are the retries: with
// four clients at a time all four attempts of one call in 81 would be refused.
var retrying = []string{"RETRYPROXY_RETRY_ON=connect-failure,reset,grpc-unavailable", "RETRYPROXY_BUDGET_RATIO=2", "RETRYPROXY_BUDGET_BURST=1000",
	"RETRYPROXY_MAX_RETRIES=8"}

// caseTime ends a case that hangs. The longest takes some twenty seconds.
const caseTime = time.Minute

// atOnce is how many clients run at a time: most of one's time is its start.
const atOnce = 4

// passing are the cases that pass when the client asks addr, and what the
// client said of each.
func passing(t *testing.T, addr string, flags ...string) (pass []string, said map[string]string) {
	t.Helper()
	said = map[string]string{}
	var mu sync.Mutex // guards pass and said
	var all sync.WaitGroup
	some := make(chan struct{}, atOnce)
	for _, c := range cases {
		all.Go(func() {
			some <- struct{}{}
			defer func() { <-some }()
			args := append([]string{"--server_host=127.0.0.1", "--server_port=" + port(t, addr), "--test_case=" + c}, flags...)
			out, err := run(t, caseTime, "", nil, filepath.Join(directory, "client"), args...)
			mu.Lock()
			defer mu.Unlock()
			if said[c] = out; err == nil {
				pass = append(pass, c)
			}
		})
	}
	all.Wait()
	slices.Sort(pass)
	return pass, said
}

// passingDirectly are the cases that pass without the proxy. At most one may fail:
// what the client and server of gRPC do without us proves nothing about us.
func passingDirectly(t *testing.T, addr string, flags ...string) []string {
	t.Helper()
	pass, said := passing(t, addr, flags...)
	for _, c := range cases {
		if !slices.Contains(pass, c) {
			t.Logf("%s fails directly:\n%s", c, said[c])
		}
	}
	if len(pass) < len(cases)-1 {
		t.Errorf("directly only %v pass", pass)
	}
	return pass
}

// mustPass fails for each case that passed directly and does not now.
func mustPass(t *testing.T, direct []string, addr string, flags ...string) {
	t.Helper()
	pass, said := passing(t, addr, flags...)
	for _, c := range direct {
		if !slices.Contains(pass, c) {
			t.Errorf("%s passes directly and not through the proxy:\n%s", c, said[c])
		}
	}
}

func TestGRPCInterop(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	direct := passingDirectly(t, addr)
	mustPass(t, direct, startProxy(t, "h2c://"+addr, retrying...).Addr)
}

// Every third stream is refused, which says that nothing was done with it.
func TestGRPCInteropWithRefusedStreams(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	direct := passingDirectly(t, addr)
	r := refuse(t, addr, 3)
	p := startProxy(t, "h2c://"+r.addr, retrying...)
	for range 2 { // most cases have one call
		mustPass(t, direct, p.Addr)
	}
	refused, retries := r.refused.Load(), metric(t, p, "retries_total")
	t.Logf("%d streams refused, %v retries", refused, retries)
	// A call that its client ends meanwhile, or that has a millisecond, is not retried.
	if refused < 8 || retries < 0.8*float64(refused) {
		t.Errorf("%d streams were refused and %v calls repeated", refused, retries)
	}
}

// The same with TLS on both sides.
func TestGRPCInteropOverTLS(t *testing.T) {
	t.Parallel()
	const name = "foo.test.google.fr" // what the gRPC project's test certificate is for
	addr := startServer(t, "--use_tls",
		"--tls_cert_file="+testdata(t, "server1.pem"), "--tls_key_file="+testdata(t, "server1.key"))
	flags := []string{"--use_tls", "--use_test_ca", "--ca_file=" + testdata(t, "ca.pem"), "--server_host_override=" + name}
	direct := passingDirectly(t, addr, flags...)
	settings := append([]string{"RETRYPROXY_UPSTREAM_CA=" + testdata(t, "ca.pem"), "RETRYPROXY_UPSTREAM_HOST=" + name,
		"RETRYPROXY_TLS_CERT=" + testdata(t, "server1.pem")}, retrying...)
	p := startProxy(t, "https://"+addr, settings...)
	mustPass(t, direct, p.Addr, flags...)
}

package demo

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/internal/logtest"
	"github.com/retryproxy/retryproxy/internal/needs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// calmSeed is a seed with which the upstream does not reset the first curls, whose numbers begin at
// 1<<32+1.
const calmSeed = 1

// output is what the demo has written.
type output struct{ logtest.Buffer }

// until waits until text was written.
func (o *output) until(t *testing.T, text string) string {
	t.Helper()
	for range 1000 {
		if s := o.String(); strings.Contains(s, text) {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %q in\n%s", text, o.String())
	return ""
}

// start runs the demo on free ports; end waits for its error.
func start(ctx context.Context, out *output, o Options) (end func() error) {
	o.Out, o.Listen, o.AdminListen = out, "127.0.0.1:0", "127.0.0.1:0"
	o.Rate, o.Seed = max(o.Rate, 50), calmSeed
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	return func() error { return <-ended }
}

var clientsRow = regexp.MustCompile(`(?m)^(without retries|with retryproxy) +(\d+) +([\d.]+) %`)

// clients reads the final table: requests and success in per cent.
func clients(t *testing.T, text string) (requests [numSides]int, success [numSides]float64) {
	t.Helper()
	rows := clientsRow.FindAllStringSubmatch(text, -1)
	if len(rows) != int(numSides) {
		t.Fatalf("%d rows of clients in\n%s", len(rows), text)
	}
	for i, row := range rows {
		requests[i], _ = strconv.Atoi(row[2])
		success[i], _ = strconv.ParseFloat(row[3], 64)
	}
	return requests, success
}

func TestRetriesRaiseSuccess(t *testing.T) {
	var out output
	if err := start(t.Context(), &out, Options{Length: 2 * time.Second})(); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	text := out.String()
	requests, success := clients(t, text)
	if requests[direct] < 20 || requests[direct] != requests[proxied] {
		t.Errorf("%v requests, want as many on both sides", requests)
	}
	if success[proxied] <= success[direct] || success[direct] == 100 {
		t.Errorf("%.1f %% success without retries, %.1f %% with", success[direct], success[proxied])
	}
	for _, want := range []string{"  recovered by a retry ", "  retries because of: 503 Service Unavailable ", "s  success"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// The suggested commands must work as printed.
func TestTheCurlLinesWork(t *testing.T) {
	needs.Program(t, "curl", "curl")
	var out output
	ctx, cancel := context.WithCancel(t.Context())
	end := start(ctx, &out, Options{})
	defer func() { cancel(); _ = end() }()
	lines := regexp.MustCompile(`(?m)^  (curl .*)$`).FindAllStringSubmatch(out.until(t, "\n\n   1 s"), -1)
	if len(lines) != 5 {
		t.Fatalf("%d curl lines in\n%s", len(lines), out.String())
	}
	for _, line := range lines {
		got, err := exec.CommandContext(ctx, "sh", "-c", line[1]).Output()
		if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 ")) && !bytes.HasPrefix(got, []byte("retryproxy_outcomes_total{")) {
			t.Errorf("%s\nerror %v, output %q", line[1], err, got)
		}
		if strings.Contains(line[1], "# with retries") && !bytes.Contains(got, []byte("X-Retryproxy-Attempts: ")) {
			t.Errorf("%s did not go through the proxy: %q", line[1], got)
		}
	}
}

// The tables show the metrics exactly.
func TestEveryRequestHasItsOutcome(t *testing.T) {
	var out output
	if err := start(t.Context(), &out, Options{Length: 500 * time.Millisecond, Rate: 100})(); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	requests, _ := clients(t, out.String())
	row := regexp.MustCompile(`(?m)^requests +(\d+) +(\d+) +(\d+) +(\d+)$`).FindStringSubmatch(out.String())
	if row == nil {
		t.Fatalf("no row of requests in\n%s", out.String())
	}
	total := 0
	for _, cell := range row[1:] {
		n, _ := strconv.Atoi(cell)
		total += n
	}
	if total != requests[proxied] {
		t.Errorf("/metrics counts %d requests, the clients %d:\n%s", total, requests[proxied], out.String())
	}
}

func TestInterruptEndsWithTheSummary(t *testing.T) {
	var out output
	ctx, cancel := context.WithCancel(t.Context())
	end := start(ctx, &out, Options{})
	out.until(t, "   1 s")
	cancel()
	if err := end(); err != nil {
		t.Error(err)
	}
	if requests, _ := clients(t, out.String()); requests[direct] == 0 {
		t.Errorf("no requests in the summary:\n%s", out.String())
	}
}

var proxyAndMetrics = regexp.MustCompile(`(?s)retryproxy (http://[\d.:]+).*page +(http://[\d.:]+)/`)

// addresses returns the addresses of the proxy and the admin server.
func addresses(t *testing.T, out *output) (proxyURL, adminURL string) {
	t.Helper()
	found := proxyAndMetrics.FindStringSubmatch(out.until(t, "Try meanwhile"))
	if found == nil {
		t.Fatalf("no addresses in\n%s", out.String())
	}
	return found[1], found[2]
}

func TestTheStatusPageIsThereAndDrainEndsTheDemo(t *testing.T) {
	var out output
	end := start(t.Context(), &out, Options{})
	_, adminURL := addresses(t, &out)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{"/": "<!doctype html>", "/config": "RETRYPROXY_LISTEN"} {
		resp, err := client.Get(adminURL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s: status %d without %q:\n%s", path, resp.StatusCode, want, body)
		}
	}
	resp, err := client.Post(adminURL+"/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestAddressesInUseGiveWayToFreePorts(t *testing.T) {
	var taken [2]string
	for i := range taken {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		taken[i] = l.Addr().String()
	}
	var out output
	if err := Run(t.Context(), Options{Length: 50 * time.Millisecond, Rate: 50, Out: &out, Listen: taken[0], AdminListen: taken[1]}); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	proxyURL, adminURL := addresses(t, &out)
	if proxyURL == "http://"+taken[0] || adminURL == "http://"+taken[1] {
		t.Errorf("%s and %s were in use", proxyURL, adminURL)
	}
}

func TestLatenciesAreTheLastOnes(t *testing.T) {
	var c tally
	if c.quantile(0.5) != 0 || c.success() != 0 {
		t.Error("something of nothing")
	}
	for i := range 25_000 {
		c.add(success, time.Duration(i)*time.Millisecond)
	}
	if p50, p99 := c.quantile(0.5), c.quantile(0.99); p50 != 20*time.Second || p99 < 24890*time.Millisecond || c.requests() != 25_000 || c.success() != 1 {
		t.Errorf("%v %v of %d", p50, p99, c.requests())
	}
}

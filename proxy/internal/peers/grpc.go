package peers

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/exchange"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// What a test's server ends without a message it ends at once, but at once can
// be long on a busy machine.
func init() { exchange.GRPCStatusWait, exchange.GRPCEndWait = time.Minute, 500*time.Millisecond }

// SpeakGRPC lets calls through that are retried on these statuses.
func SpeakGRPC(t testing.TB, retryOn string) func(*settings.Config) {
	on, err := policy.ParseRetryOn(retryOn)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *settings.Config) {
		SpeakHTTP2(c)
		c.Default.Policy.RetryOn = on
	}
}

// GRPCMessage frames a gRPC message.
func GRPCMessage(s string) []byte {
	return append([]byte{0, byte(len(s) >> 24), byte(len(s) >> 16), byte(len(s) >> 8), byte(len(s))}, s...)
}

// GRPCResult is what a call came to for its client.
type GRPCResult struct {
	Status, Message string
	Body            string
	Header          http.Header
	TrailersOnly    bool
}

func (a GRPCResult) String() string {
	return fmt.Sprintf("status %s %q, body %q", a.Status, a.Message, a.Body)
}

// CallGRPC makes a gRPC call and reads it to its end.
func (p *Front) CallGRPC(body io.Reader, fields ...string) GRPCResult {
	p.T.Helper()
	req, _ := http.NewRequest("POST", "http://"+p.Addr+"/pkg.Service/Method", body)
	req.Header = http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, b := p.fetch(HTTP2Client(p.T, nil), req)
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(ct, "application/grpc") {
		p.T.Errorf("a gRPC client got HTTP status %d and %q", res.StatusCode, ct)
	}
	a := GRPCResult{Status: res.Trailer.Get("Grpc-Status"), Message: res.Trailer.Get("Grpc-Message"), Body: b, Header: res.Header}
	if s := res.Header.Get("Grpc-Status"); s != "" {
		a.Status, a.Message, a.TrailersOnly = s, res.Header.Get("Grpc-Message"), true
	}
	return a
}

// GRPCServer answers each attempt, numbered from 1, by response; it returns the
// requests' headers.
func GRPCServer(t testing.TB, response func(n int, w http.ResponseWriter, r *http.Request)) (addr string, allHeaders chan http.Header) {
	allHeaders = make(chan http.Header, 100)
	n := make(chan int, 1)
	n <- 0
	return HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		k := <-n + 1
		n <- k
		allHeaders <- r.Header
		w.Header().Set("Content-Type", "application/grpc")
		response(k, w, r)
	}), allHeaders
}

// GRPCEcho answers a call with a message and status 0.
func GRPCEcho(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body)
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}

package response_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// served is a request whose response is written by w.
type served struct {
	*requesttest.Client
	w       response.Writer
	refused []http1.Refusal // what was counted

	t *testing.T
}

// serve returns the request with the headers in text, after one attempt.
func serve(t *testing.T, text string, change func(c *settings.Config)) *served {
	t.Helper()
	s := &served{t: t}
	s.Client = requesttest.Begin(t, text, func(c *settings.Config) {
		c.Refused = func(why http1.Refusal) { s.refused = append(s.refused, why) }
		if change != nil {
			change(c)
		}
	})
	s.w.Init(s.Request)
	t.Cleanup(s.w.Release) // before the request ends
	s.begin()
	return s
}

func (s *served) begin() {
	s.w.Begin(s.HTTP.Close)
	s.Out.FindID()
	s.BeginAttempt()
}

// with returns a GET with more headers, each a line.
func with(lines ...string) string {
	return strings.Join(append([]string{"GET /a HTTP/1.1", "Host: a", "X-Request-Id: id-1"}, append(lines, "", "")...), "\r\n")
}

// said returns a response of the upstream with the headers given, each a line.
func said(t *testing.T, status int, lines ...string) *http1.Response {
	t.Helper()
	text := fmt.Sprintf("HTTP/1.1 %d Phrase\r\n%s\r\n", status, strings.Join(append(lines, ""), "\r\n"))
	r := &http1.Response{}
	if n, err := r.Parse([]byte(text), http1.Limits{HeaderBytes: 1 << 16, Headers: 100}, []byte("GET")); err != nil || n != len(text) {
		t.Fatalf("%q: %d, %v", text, n, err)
	}
	return r
}

// relay sends resp with its body, as a response of the upstream that came now.
func (s *served) relay(resp *http1.Response, f http1.Framing, body, reason string) {
	s.t.Helper()
	f = s.w.Framing(f)
	s.w.Headers(resp, f, s.Time.Now(), reason)
	if err := s.w.WritePiece(f, []byte(body)); err != nil {
		s.t.Fatal(err)
	}
	if err := s.w.EndBody(f, nil); err != nil {
		s.t.Fatal(err)
	}
}

// relayed sends a response without a body and returns its headers.
func (s *served) relayed(resp *http1.Response, reason string) (header map[string][]string) {
	s.t.Helper()
	s.relay(resp, http1.Framing{Kind: http1.BodyLength}, "", reason)
	res, _ := s.Response("GET")
	return res.Header
}

// fallsBack gives the route a fallback upstream.
func fallsBack(c *settings.Config) {
	spare := c.Default.Upstream
	spare.Address, spare.Host = "spare.example:80", "spare.example"
	c.Default.Fallbacks = []settings.Fallback{{Upstream: spare}}
}

// hides removes headers from responses.
func hides(names ...string) func(c *settings.Config) {
	return func(c *settings.Config) { c.Default.ResponseChanges = forward.NewHeaderChanges(nil, names) }
}

// own are the headers in which the proxy reports what it did.
var own = []string{"X-Retryproxy-Attempts", "X-Retryproxy-Reason", "X-Retryproxy-Fallback", "X-Request-Id", "X-Should-Retry"}

// ownIn returns which of own are in header.
func ownIn(header map[string][]string) (names []string) {
	for _, name := range own {
		if len(header[name]) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func wantNames(t *testing.T, header map[string][]string, want ...string) {
	t.Helper()
	if got := ownIn(header); !slices.Equal(got, want) {
		t.Errorf("of our headers there are %v, want %v", got, want)
	}
}

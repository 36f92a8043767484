package forward

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// ofConnection are the fields that a block does not have: those of an HTTP/1.1 connection, and Host, which a
// pseudo-header has.
var ofConnection = []string{"connection", "upgrade", "transfer-encoding", "host", "keep-alive"}

// fromLines returns the fields of a section without its first line, with names in lower case.
func fromLines(section string) (all []string) {
	_, section, _ = strings.Cut(section, "\r\n")
	for line := range strings.SplitSeq(strings.TrimRight(section, "\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name = strings.ToLower(name); !slices.Contains(ofConnection, name) {
			all = append(all, name+": "+strings.Trim(value, " \t"))
		}
	}
	return all
}

// fromBlock returns the fields of a header block.
func fromBlock(t *testing.T, block []byte) (all []string) {
	t.Helper()
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { all = append(all, f.Name+": "+f.Value) })
	if _, err := d.Write(block); err != nil {
		t.Fatal(err)
	}
	return all
}

// A header section says the same in both forms.
func TestABlockSaysWhatTheLinesSay(t *testing.T) {
	changes := NewHeaderChanges([]http1.Header{http1.NewHeader("X-Team", "a: b"), http1.NewHeader("X-Team", "")}, []string{"X-Secret"})
	peer := Peer{Text: "192.0.2.1"}
	for _, in := range []string{
		headerLines("GET /a?b HTTP/1.1", "Host: a", "X-Team: client", "X-Secret: s", "Accept: */*"),
		headerLines("POST / HTTP/1.1", "Host: a", "Content-Length: 3", "X-Forwarded-For: 1.1.1.1", "x-forwarded-for: 2.2.2.2", "X-Request-Id: mine"),
		headerLines("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Trailer: x-sum", "TE: trailers", "Connection: TE, x-hop", "X-Hop: 1"),
		headerLines("GET / HTTP/1.1", "Host: a", "Connection: upgrade", "Upgrade: websocket", "X-Request-Timeout: 2.5", "grpc-timeout: 1S", "X-Envoy-Expected-Rq-Timeout-Ms: 70"),
		headerLines("TRACE / HTTP/1.1", "Host: a", "Max-Forwards: 3", "Traceparent: x", "Tracestate: y=1"),
	} {
		r, s := parseRequest(t, in), &Settings{UpstreamHost: "up", Changes: changes}
		var d Deadline
		d.Read(r)
		section := func(form wire.Form, dst []byte) []byte {
			dst = AppendRequestFields(form, dst, r, s, &peer, []byte("id"), []byte("key"))
			dst = AppendGRPCAttempts(form, d.Append(form, dst, 1500*time.Millisecond), 2)
			return AppendAttempt(form, AppendClientTrace(form, dst, r), 2, true)
		}
		want := fromLines(string(section(wire.Lines, []byte("first line\r\n"))))
		if got := fromBlock(t, section(wire.Block, nil)); !slices.Equal(got, want) {
			t.Errorf("%q\nblock %q\nlines %q", in, got, want)
		}
		if got := string(AppendAuthority(nil, r, s, &peer)); got != "a" {
			t.Errorf("authority %q", got)
		}
	}
	for _, c := range []struct {
		in string
		o  ResponseOptions
	}{
		{headerLines("HTTP/1.1 200 OK", "Content-Length: 2", "X-Secret: s", "Set-Cookie: a", "Set-Cookie: b"), ResponseOptions{Framing: http1.Framing{Kind: http1.BodyLength, Length: 2}, Attempts: 1}},
		{headerLines("HTTP/1.1 503 No", "Transfer-Encoding: chunked", "Trailer: x-sum", "X-Should-Retry: true", "X-Retryproxy-Attempts: 2"), ResponseOptions{Framing: http1.Framing{Kind: http1.BodyStream, Length: -1}, Attempts: 3, Reason: "deadline", NoRetry: true, Fallback: "answer", RequestID: []byte("id"), Date: []byte("now"), Close: true}},
		{headerLines("HTTP/1.1 426 Upgrade", "Upgrade: h3", "Content-Length: 0"), ResponseOptions{Framing: http1.Framing{Kind: http1.BodyLength}}},
	} {
		r := parseResponse(t, c.in, "GET")
		c.o.Changes, c.o.Minor = changes, 1
		want := fromLines(string(AppendResponseHeaders(nil, r, &c.o)))
		c.o.Form = wire.Block
		if got := fromBlock(t, AppendResponseHeaders(nil, r, &c.o)); !slices.Equal(got, want) {
			t.Errorf("%q\nblock %q\nlines %q", c.in, got, want)
		}
	}
}

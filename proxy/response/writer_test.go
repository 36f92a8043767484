package response_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

func TestAResponseIsRelayedWithWhatWeSayOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, with(), nil)
		received := s.Time.Now()
		want := time.Now().UTC().Format(http.TimeFormat)
		time.Sleep(5 * time.Second) // it is kept while another attempt is made
		f := s.w.Framing(http1.Framing{Kind: http1.BodyLength, Length: 4})
		s.w.Headers(said(t, 503, "X-Its: yes", "Content-Length: 4"), f, received, "retries_exhausted")
		if err := errors.Join(s.w.WritePiece(f, []byte("bu")), s.w.WritePiece(f, []byte("sy")), s.w.EndBody(f, nil)); err != nil {
			t.Fatal(err)
		}
		res, body := s.Response("GET")
		if res.StatusCode != 503 || res.Status != "503 Phrase" || body != "busy" || s.w.BodySent() != 4 || !s.w.KeepsConnection() {
			t.Errorf("%q, %d sent", s.Wire.String(), s.w.BodySent())
		}
		for name, value := range map[string]string{
			"X-Its": "yes", "Date": want, "X-Request-Id": "id-1", "X-Retryproxy-Attempts": "1", "X-Retryproxy-Reason": "retries_exhausted",
		} {
			if got := strings.Join(res.Header[name], "|"); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
	})
}

func TestTheUpstreamsDateAndRequestIDStay(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:00 GMT"
	h := serve(t, with(), nil).relayed(said(t, 200, "Date: "+date, "X-Request-Id: its"), "")
	if got := strings.Join(append(h["Date"], h["X-Request-Id"]...), "|"); got != date+"|its" {
		t.Error(got)
	}
}

func TestTheFramingIsOneThatTheClientKnows(t *testing.T) {
	none, length := http1.Framing{Kind: http1.BodyNone}, http1.Framing{Kind: http1.BodyLength, Length: 9}
	chunked, closing := http1.Framing{Kind: http1.BodyChunked}, http1.Framing{Kind: http1.BodyClose}
	for _, tc := range []struct {
		request    string
		from, want http1.Framing
		keeps      bool
	}{
		{with(), none, none, true},
		{with(), length, length, true},
		{with(), chunked, chunked, true},
		{with(), closing, chunked, true},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", none, none, true},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", length, length, true},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", chunked, closing, false},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", closing, closing, false},
	} {
		s := serve(t, tc.request, nil)
		if got := s.w.Framing(tc.from); got != tc.want || s.w.KeepsConnection() != tc.keeps {
			t.Errorf("%.20q, %+v: %+v, keeps %v", tc.request, tc.from, got, s.w.KeepsConnection())
		}
	}
}

// The end of the connection is the end of the body, which is relayed without chunks.
func TestAnHTTP10ClientGetsABodyThatEndsWithItsConnection(t *testing.T) {
	s := serve(t, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", nil)
	s.relay(said(t, 200, "Transfer-Encoding: chunked"), http1.Framing{Kind: http1.BodyChunked}, "all of it", "")
	res, body := s.Response("GET")
	if body != "all of it" || !res.Close || len(res.TransferEncoding) > 0 || s.w.KeepsConnection() {
		t.Errorf("keeps %v: %q", s.w.KeepsConnection(), s.Wire.String())
	}
}

// However the pieces fall, the client gets the same bytes, and they are counted.
func TestABodyIsTheSameInWhateverPieces(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 8<<10) // 128 KiB
	for _, f := range []http1.Framing{{Kind: http1.BodyLength, Length: int64(len(body))}, {Kind: http1.BodyChunked}} {
		for _, size := range []int{1000, 4095, 4096, 5000, 16 << 10, 20_000, len(body)} {
			s := serve(t, with(), nil)
			s.w.Headers(said(t, 200), f, s.Time.Now(), "")
			for at := 0; at < len(body); at += size {
				if err := s.w.WritePiece(f, body[at:min(at+size, len(body))]); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.w.EndBody(f, nil); err != nil {
				t.Fatal(err)
			}
			if _, got := s.Response("GET"); got != string(body) || s.w.BodySent() != int64(len(body)) {
				t.Errorf("framing %v, pieces of %d: %d bytes, %d counted", f.Kind, size, len(got), s.w.BodySent())
			}
			s.w.Release()
		}
	}
}

// What was written by the kernel counts too.
func TestSplicedBytesAreCounted(t *testing.T) {
	s := serve(t, with(), nil)
	s.relay(said(t, 200), http1.Framing{Kind: http1.BodyLength, Length: 5}, "hello", "")
	s.w.Spliced(10)
	if n := s.w.BodySent(); n != 15 {
		t.Error(n)
	}
}

// Small pieces wait for each other until Flush: the headers are not a packet of their own.
func TestHeadersAndPiecesAreWrittenTogether(t *testing.T) {
	s := serve(t, with(), nil)
	f := http1.Framing{Kind: http1.BodyLength, Length: 4}
	s.w.Headers(said(t, 200), f, s.Time.Now(), "")
	if err := s.w.WritePiece(f, []byte("body")); err != nil || s.Wire.String() != "" {
		t.Errorf("%v, written early: %q", err, s.Wire.String())
	}
	if err := s.w.Flush(); err != nil || !strings.HasSuffix(s.Wire.String(), "\r\n\r\nbody") {
		t.Errorf("%v: %q", err, s.Wire.String())
	}
	before := s.Wire.String()
	if err := s.w.Flush(); err != nil || s.Wire.String() != before {
		t.Errorf("written twice: %q", s.Wire.String())
	}
}

func TestTrailersAreChangedLikeHeaders(t *testing.T) {
	s := serve(t, with(), hides("X-Secret"))
	f := http1.Framing{Kind: http1.BodyChunked}
	s.w.Headers(said(t, 200, "Trailer: X-Sum"), f, s.Time.Now(), "")
	if err := s.w.EndBody(f, []http1.Header{http1.NewHeader("X-Sum", "1"), http1.NewHeader("X-Secret", "2")}); err != nil {
		t.Fatal(err)
	}
	if res, _ := s.Response("GET"); res.Trailer.Get("X-Sum") != "1" || len(res.Trailer["X-Secret"]) > 0 {
		t.Errorf("%q", s.Wire.String())
	}
}

func TestAClientThatLeftIsNoticedByEveryWrite(t *testing.T) {
	big := make([]byte, 64<<10)
	for name, write := range map[string]func(s *served) error{
		"flush":  func(s *served) error { return s.w.Flush() },
		"end":    func(s *served) error { return s.w.EndBody(http1.Framing{Kind: http1.BodyChunked}, nil) },
		"piece":  func(s *served) error { return s.w.WritePiece(http1.Framing{Kind: http1.BodyLength}, big) },
		"chunks": func(s *served) error { return s.w.WritePiece(http1.Framing{Kind: http1.BodyChunked}, big) },
		"call":   func(s *served) error { return s.w.EndGRPCCall() },
		"tunnel": func(s *served) error { return s.w.Upgrade(said(t, 101, "Upgrade: x", "Connection: upgrade"), nil) },
	} {
		s := serve(t, with(), nil)
		s.w.Headers(said(t, 200), http1.Framing{Kind: http1.BodyChunked}, s.Time.Now(), "")
		s.Wire.Leave()
		if err := write(s); !errors.Is(err, attempt.ErrClientGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := serve(t, with(), nil)
	s.Wire.Leave()
	if s.w.Inform(said(t, 103)) == nil {
		t.Error("an informational response went to nobody")
	}
}

// A write that waited for the client may have taken long: what follows reads the clock anew.
func TestTheClockIsReadAfterAWriteThatMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []http1.Framing{{Kind: http1.BodyLength, Length: 1 << 20}, {Kind: http1.BodyChunked}} {
			s := serve(t, with(), nil)
			s.w.Headers(said(t, 200), f, s.Time.Now(), "")
			time.Sleep(time.Minute)
			if err := s.w.WritePiece(f, make([]byte, 64<<10)); err != nil {
				t.Fatal(err)
			}
			if now := s.Time.Now(); s.Time.Clock != now {
				t.Errorf("the time is %v old", now.Sub(s.Time.Clock))
			}
		}
	})
}

func TestAnInformationalResponseIsNoResponse(t *testing.T) {
	s := serve(t, with(), func(c *settings.Config) {
		c.Default.ResponseChanges = forward.NewHeaderChanges([]http1.Header{http1.NewHeader("X-Set", "yes")}, []string{"X-Secret"})
	})
	if err := s.w.Inform(said(t, 103, "Link: </a>", "X-Secret: 1")); err != nil {
		t.Fatal(err)
	}
	if got := s.Wire.String(); got != "HTTP/1.1 103 Phrase\r\nLink: </a>\r\n\r\n" {
		t.Errorf("%q", got)
	}
	s.w.Error(502, policy.OutcomeResponseBroken, "reset") // it can still be sent
	if _, after, _ := strings.Cut(s.Wire.String(), "\r\n\r\n"); !strings.HasPrefix(after, "HTTP/1.1 502 Bad Gateway\r\n") || s.w.Resets() {
		t.Errorf("%q", after)
	}
}

// A tunnel gets what followed the headers at once, and its connection serves no further request.
func TestAnUpgradeIsTheLastResponse(t *testing.T) {
	s := serve(t, with("Connection: upgrade", "Upgrade: websocket"), func(c *settings.Config) {
		c.Default.ResponseChanges = forward.NewHeaderChanges([]http1.Header{http1.NewHeader("X-Set", "yes")}, nil)
	})
	if err := s.w.Upgrade(said(t, 101, "Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Accept: k"), []byte("frame")); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(s.Wire.String(), "\r\n\r\n")
	for _, want := range []string{"HTTP/1.1 101 Phrase\r\n", "\r\nConnection: upgrade", "\r\nUpgrade: websocket", "\r\nSec-WebSocket-Accept: k", "\r\nX-Retryproxy-Attempts: 1"} {
		if !strings.Contains(head, want) {
			t.Errorf("no %q in %q", want, head)
		}
	}
	if strings.Contains(head, "X-Set") || strings.Contains(head, "Connection: close") || rest != "frame" || s.w.KeepsConnection() {
		t.Errorf("%q, keeps %v", s.Wire.String(), s.w.KeepsConnection())
	}
	if s.w.Error(502, policy.OutcomeResponseBroken, "reset"); !s.w.Resets() {
		t.Error("an error can follow a tunnel")
	}
}

// Our headers can be hidden from clients, but a retryproxy needs them, and in a dry run there are none.
func TestWhoSeesOurHeaders(t *testing.T) {
	believed := with("X-Retryproxy-Attempt: 2")
	hidden := hides("X-Retryproxy-Attempts", "X-Retryproxy-Reason", "X-Retryproxy-Fallback", "X-Request-Id", "X-Should-Retry")
	for name, tc := range map[string]struct {
		request string
		change  func(c *settings.Config)
		sees    bool
	}{
		"everyone":             {with(), nil, true},
		"hidden":               {with(), hidden, false},
		"hidden, a retryproxy": {believed, hidden, true},
		"hidden, a stranger that says so": {believed, func(c *settings.Config) {
			hidden(c)
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}, false},
		"a dry run":               {with(), func(c *settings.Config) { c.Default.DryRun = true }, false},
		"a dry run, a retryproxy": {believed, func(c *settings.Config) { c.Default.DryRun = true }, false},
	} {
		var want []string
		if tc.sees {
			want = own
		}
		for kind, get := range map[string]func(s *served) map[string][]string{
			"the upstream's": func(s *served) map[string][]string { return s.relayed(said(t, 503), "not_idempotent") },
			"ours": func(s *served) map[string][]string {
				s.w.Error(502, policy.OutcomeOverloaded, "not_idempotent")
				res, _ := s.Response("GET")
				return res.Header
			},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				s := serve(t, tc.request, tc.change)
				s.From("192.0.2.1")
				s.w.InPlaceOfUpstream(response.FallbackUpstream)
				wantNames(t, get(s), want...)
			})
		}
	}
}

// A client must not retry what may have been done, and need not retry what cannot succeed.
func TestWhenTheClientIsAskedNotToRetry(t *testing.T) {
	asks := func(wait time.Duration) func(s *served) { return func(s *served) { s.w.Asks(wait) } }
	for name, tc := range map[string]struct {
		reason policy.Reason
		status int
		lines  []string
		change func(c *settings.Config)
		before func(s *served)
		want   string // of X-Should-Retry
	}{
		"may have been done":                    {policy.ReasonNotIdempotent, 503, nil, nil, nil, "false"},
		"the same with a fallback":              {policy.ReasonNotIdempotent, 503, nil, fallsBack, nil, "false"},
		"but the upstream asks for a retry":     {policy.ReasonNotIdempotent, 503, []string{"X-Should-Retry: true"}, nil, nil, "true"},
		"failed for as long as we tried":        {policy.ReasonRetriesExhausted, 503, nil, nil, nil, ""},
		"an account is used up":                 {policy.ReasonQuotaExhausted, 429, nil, nil, nil, "false"},
		"the same, whatever the upstream says":  {policy.ReasonQuotaExhausted, 429, []string{"X-Should-Retry: true"}, nil, nil, "false"},
		"an account is used up, and a fallback": {policy.ReasonQuotaExhausted, 429, nil, fallsBack, nil, ""},
		"too large":                             {policy.ReasonRequestTooLarge, 429, nil, nil, nil, "false"},
		"a certificate":                         {policy.ReasonUntrustedCertificate, 502, nil, nil, nil, "false"},
		"no wait that clients read":             {policy.ReasonRetryAfterTooLong, 429, nil, nil, nil, "false"},
		"a wait that clients keep":              {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 59"}, nil, asks(59 * time.Second), ""},
		"a minute":                              {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 60"}, nil, asks(time.Minute), ""},
		"longer than they wait":                 {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 61"}, nil, asks(time.Minute), "false"},
		"longer, with a fallback":               {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 61"}, fallsBack, asks(time.Minute), ""},
		"shorter than asked for elsewhere":      {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 20"}, nil, asks(40 * time.Second), "false"},
		"a second shorter":                      {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 39"}, nil, asks(40 * time.Second), ""},
		"milliseconds come first":               {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 90", "Retry-After-Ms: 30000"}, nil, asks(30 * time.Second), ""},
		"too many milliseconds":                 {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After-Ms: 60001"}, nil, asks(time.Minute), "false"},
		"endless milliseconds":                  {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After-Ms: 9223372036854775807"}, nil, asks(time.Minute), "false"},
		"milliseconds that are no number":       {policy.ReasonRetryAfterTooLong, 429, []string{"Retry-After: 30", "Retry-After-Ms: soon"}, nil, asks(30 * time.Second), ""},
	} {
		s := serve(t, with(), tc.change)
		if tc.before != nil {
			tc.before(s)
		}
		if got := strings.Join(s.relayed(said(t, tc.status, tc.lines...), tc.reason.String())["X-Should-Retry"], "|"); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// The vendors' clients repeat a request whose good response was cut off, unless the headers forbid it.
func TestAVendorsClientIsKeptFromRepeatingWhatMayNotRunTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		status  int
		lines   []string
		safe    bool
		want    string
	}{
		"its request":             {with("X-Stainless-Retry-Count: 0"), 200, nil, false, "false"},
		"399":                     {with("X-Stainless-Retry-Count: 0"), 399, nil, false, "false"},
		"one that may run twice":  {with("X-Stainless-Retry-Count: 0"), 200, nil, true, ""},
		"a failure":               {with("X-Stainless-Retry-Count: 0"), 400, nil, false, ""},
		"what the upstream wants": {with("X-Stainless-Retry-Count: 0"), 200, []string{"X-Should-Retry: true"}, false, "true"},
		"another client":          {with(), 200, nil, false, ""},
	} {
		s := serve(t, tc.request, nil)
		if tc.safe {
			s.Prepare() // it is a GET
		}
		if got := strings.Join(s.relayed(said(t, tc.status, tc.lines...), "")["X-Should-Retry"], "|"); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A response to HEAD and a 304 say how long the body would be.
func TestADeclaredLengthStaysWithoutABody(t *testing.T) {
	s := serve(t, strings.Replace(with(), "GET", "HEAD", 1), nil)
	s.relay(said(t, 200, "Content-Length: 77"), http1.Framing{Kind: http1.BodyNone}, "", "")
	if res, body := s.Response("HEAD"); res.ContentLength != 77 || body != "" {
		t.Errorf("%q", s.Wire.String())
	}
}

// The buffer of the request's headers is used for the response, and only if that has none.
func TestTheHeadersBufferIsUsedAgain(t *testing.T) {
	s := serve(t, with(), nil)
	s.Out.Render(wire.Lines)
	s.w.TakeHeadersBuffer()
	if s.Out.Headers() != nil {
		t.Error("it is used twice")
	}
	s.w.Error(503, policy.OutcomeOverloaded, "why")
	if got := s.Wire.String(); !strings.HasPrefix(got, "HTTP/1.1 503 ") || strings.Contains(got, "GET") {
		t.Errorf("%q", got)
	}
	s.Out.Render(wire.Lines)
	s.w.TakeHeadersBuffer()
	if s.Out.Headers() == nil {
		t.Error("a second one was taken")
	}
}

// A write has its time from its beginning, whatever was before.
func TestAWriteHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, with(), func(c *settings.Config) { c.WriteTimeout = 3 * time.Second })
		s.Time.Tick()
		s.relay(said(t, 200), http1.Framing{Kind: http1.BodyLength, Length: 2}, "ok", "")
		if left := time.Until(s.Wire.WriteBy()); left < 3*time.Second || left > 6*time.Second {
			t.Errorf("%v are left for a write that may take 3 s", left)
		}
		time.Sleep(time.Minute)
		if err := s.w.Inform(said(t, 103)); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(s.Wire.WriteBy()); left < 3*time.Second {
			t.Errorf("%v are left for a later write", left)
		}
	})
}

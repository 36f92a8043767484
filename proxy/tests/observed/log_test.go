package observed

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestTheAccessLogTellsEveryAttemptAndNoSecrets(t *testing.T) {
	log, lines := peers.LogLines()
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, "", peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.AccessLog, c.Log = true, log })
	p.Dial().Send("GET /a?token=secret HTTP/1.1\r\nHost: a\r\nX-Request-Id: my-id\r\n\r\n").Want(200, "ok")
	p.Seen.Outcome(t, 0)
	peers.Soon(t, "line", func() bool { return strings.Contains(lines.String(), "\n") })
	line := lines.String()
	for _, want := range []string{
		`"msg":"request"`, `"path":"/a?..."`, `"request_id":"my-id"`, `"outcome":"recovered","outcome_words":"recovered by a retry"`,
		`{"address":"` + u.Addr().String() + `","status":503,"class":"unknown_if_processed","duration_seconds":0.`, `","cause":"reset","class":"unknown_if_processed","duration_seconds":0.`, `","status":200,"class":"ok","duration_seconds":0.`,
		`,"wait_seconds":0.00`, `"outcome":"recovered","outcome_words":"recovered by a retry","request_bytes":0,"response_bytes":2,"duration_seconds":0.`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("the line has no %s: %s", want, line)
		}
	}
	if strings.Contains(line, "secret") {
		t.Errorf("the line shows the query: %s", line)
	}
}

// hostile texts would end a string, an object or a line, or mislead a terminal, if a log line had them as they are.
var hostile = []string{`"}{"msg":"forged"}`, `","forged":"`, `","msg":"request","msg":"`, `\`, `\"`, `\u000a{"msg":"forged"}`, "%0d%0a%7b%22msg%22:%22forged%22%7d",
	"\u0085", "\u009b31m", "\u2028\u2029", "\u202e", "\ufeff", "\xff\xfe", "\xc0\x8a", "\xed\xa0\x80", "\t", strings.Repeat("\xff", 10000)}

// hostilePaths are those that the parser lets through.
var hostilePaths = []string{`/"}{"msg":"forged"}`, `/","forged":"`, "/%0d%0a%7b%22msg%22:%22forged%22%7d", "/%1b[31m", "/\u202e"}

// hostileToken has all punctuation that a method and a header name may have.
const hostileToken = "A!#$%&'*+-.^_`|~"

// Wherever a client says them, hostile texts stay within the one line of its request.
func TestNoClientForgesALogLine(t *testing.T) {
	log, lines := peers.LogLines()
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { c.AccessLog, c.Log = true, log })
	c := p.Dial()
	for i, text := range hostile {
		method := []string{"GET", hostileToken}[i%2]
		c.Send(method+" "+hostilePaths[i%len(hostilePaths)]+"?secret HTTP/1.1\r\nHost: a\r\nAuthorization: secret\r\nCookie: secret\r\nX-Request-Id: "+text+
			"\r\nUser-Agent: "+text+"\r\nX-Forwarded-For: "+text+"\r\nTraceparent: "+text+"\r\n"+hostileToken+": "+text+"\r\n\r\n").Want(200, "ok")
	}
	p.Stop()
	wantRequestLines(t, lines.String(), len(hostile))
}

func TestNoHTTP2ClientForgesALogLine(t *testing.T) {
	log, lines := peers.LogLines()
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { peers.SpeakHTTP2(c); c.AccessLog, c.Log = true, log })
	client := peers.HTTP2Client(t, nil)
	for i, text := range hostile {
		target := &url.URL{Scheme: "http", Host: p.Addr, Opaque: hostilePaths[i%len(hostilePaths)] + "?secret"} // opaque: not escaped
		header := http.Header{"Authorization": {"secret"}, "X-Request-Id": {text}, "User-Agent": {text}, "Traceparent": {text}, hostileToken: {text}}
		res, err := client.Do(&http.Request{Method: []string{"GET", hostileToken}[i%2], URL: target, Header: header})
		if err != nil {
			t.Fatalf("%.100q: %v", text, err)
		}
		res.Body.Close()
		if res.ProtoMajor != 2 || res.StatusCode != 200 {
			t.Errorf("%.100q: %s %d", text, res.Proto, res.StatusCode)
		}
	}
	client.CloseIdleConnections()
	p.Stop()
	wantRequestLines(t, lines.String(), len(hostile))
}

func TestNoUpstreamForgesALogLine(t *testing.T) {
	log, lines := peers.LogLines()
	var responses []string
	for _, text := range hostile {
		responses = append(responses, "HTTP/1.1 503 "+text+"\r\nX-A: "+text+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", text+"\r\n\r\n")
	}
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(responses...)), func(c *proxy.Config) {
		c.AccessLog, c.Log = true, log
		c.Default.Policy.MaxRetries = 0
	})
	for range responses {
		if _, _, err := p.Dial().Send(peers.Get("/")).Response("GET"); err != nil {
			t.Fatal(err)
		}
	}
	p.Stop()
	wantRequestLines(t, lines.String(), len(responses))
}

// requestKeys are the keys of a line about a request, in order.
const requestKeys = "level msg route method host path status outcome outcome_words request_bytes response_bytes duration_seconds attempts peer user_agent request_id trace_id reason"

// wantRequestLines checks that there are n lines, each about a request, and that none of them shows anything hostile.
func wantRequestLines(t *testing.T, lines string, n int) {
	t.Helper()
	all := strings.Split(strings.TrimSuffix(lines, "\n"), "\n")
	if len(all) != n {
		t.Errorf("%d lines about %d requests", len(all), n)
	}
	for _, line := range all {
		keys, msg, err := keysOf(line)
		if err != nil || msg != "request" || strings.Join(keys, " ") != requestKeys {
			t.Errorf("%v, the message %q, the keys %q: %.500s", err, msg, keys, line)
		}
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' }) {
			t.Errorf("control characters or bytes that are no text: %.500q", line)
		}
		if strings.Contains(line, "secret") || len(line) > 4<<10 {
			t.Errorf("a secret, or %d bytes: %.500s", len(line), line)
		}
	}
}

// keysOf returns the keys of a JSON object, duplicates included, and the last value of msg.
func keysOf(line string) (keys []string, msg string, err error) {
	d := json.NewDecoder(strings.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, "", fmt.Errorf("no JSON object (%v)", err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return keys, msg, err
		}
		keys = append(keys, key.(string))
		var value any
		if err := d.Decode(&value); err != nil {
			return keys, msg, err
		}
		if key == "msg" {
			msg, _ = value.(string)
		}
	}
	if _, err := d.Token(); err != nil {
		return keys, msg, err
	}
	if _, err := d.Token(); err != io.EOF {
		return keys, msg, fmt.Errorf("more than one object (%v)", err)
	}
	return keys, msg, nil
}

func TestGivenUpRequestsAreLoggedUpToTheLimitThenCounted(t *testing.T) {
	log, lines := peers.LogLines()
	u := peers.StartUpstream(t, peers.Script(peers.Bad503))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Log, c.GaveUpLogPerMinute = log, 2
		c.Default.Policy.MaxRetries = 0
	})
	c := p.Dial()
	for range 10 {
		c.Send(peers.Get("/")).Want(503, "busy")
	}
	p.Seen.Outcome(t, 9)
	p.Stop()
	given := strings.Count(lines.String(), `"msg":"request given up"`)
	if given < 2 || given > 4 { // 4: where a minute ended meanwhile
		t.Errorf("%d lines for 10 requests given up, want 2 a minute", given)
	}
	if want := fmt.Sprintf(`"msg":"more requests given up, lines suppressed","route":"default","count":%d}`, 10-given); given == 2 && !strings.Contains(lines.String(), want) {
		t.Errorf("at the end there is no line %s in %s", want, lines.String())
	}
}

func TestSuppressedLinesAreCountedWhenTheirConfigurationIsReplaced(t *testing.T) {
	log, lines := peers.LogLines()
	var again *proxy.Config
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.Bad503)), func(c *proxy.Config) {
		c.Log, c.GaveUpLogPerMinute = log, 0
		c.Default.Policy.MaxRetries = 0
		again = c
	})
	p.Dial().Send(peers.Get("/")).Want(503, "busy")
	p.Seen.Outcome(t, 0)
	peers.Soon(t, "the request's end", func() bool { return p.Stats().InFlight == 0 })
	if err := p.Reload(again); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(lines.String(), `lines suppressed","route":"default","count":1}`) {
		t.Errorf("no count in %s", lines.String())
	}
}

func TestAnOutageIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	log, lines := peers.LogLines()
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) { peers.WithBreaker(c); c.Log = log })
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "line of the outage", func() bool {
		return strings.Contains(lines.String(), `"msg":"circuit breaker opened","upstream":"http://`+permit.Addr+`","by":"refused"`)
	})
	peers.ServeListener(t, permit.Open(), peers.Script(peers.OK200))
	c.Want(200, "ok")
	peers.Soon(t, "line of its end", func() bool {
		c.Send(peers.Get("/")).Want(200, "ok")
		return strings.Contains(lines.String(), `"msg":"circuit breaker closed"`)
	})
}

func TestTheAccessLogCountsOurOwnAnswersBytes(t *testing.T) {
	log, lines := peers.LogLines()
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) { c.AccessLog, c.Log = true, log })
	_, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if want := fmt.Sprintf(`"response_bytes":%d,`, len(body)); len(body) == 0 || !strings.Contains(lines.String(), want) {
		t.Errorf("no %s in %s", want, lines.String())
	}
}

// A client can find the log line of every response, and that line names the error.
func TestEveryResponseNamesItsLine(t *testing.T) {
	for name, tt := range map[string]struct{ sent, id, status, reason string }{
		"malformed":        {"GET / HTTP/1.1\r\nHost: a\r\nBad : x\r\n\r\n", "", "400", "space_before_colon"},
		"two hosts":        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nX-Request-Id: mine\r\n\r\n", "", "400", "duplicate_host"},
		"ambiguous path":   {"GET /api/../secret HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", "mine", "400", "ambiguous_path"},
		"TRACE to us":      {"TRACE / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\nX-Request-Id: mine\r\n\r\n", "mine", "405", "max_forwards"},
		"OPTIONS to us":    {"OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\nX-Request-Id: mine\r\n\r\n", "mine", "200", ""},
		"too slow":         {"GET / HTTP/1.1\r\n", "", "408", "request_timeout"},
		"malformed body":   {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-Request-Id: mine\r\n\r\nzz\r\n", "mine", "400", "bad_chunk"},
		"nothing to retry": {peers.Get("/"), "", "501", "not_in_retry_on"},
		"served":           {"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", "mine", "200", ""},
	} {
		t.Run(name, func(t *testing.T) {
			log, lines := peers.LogLines()
			u := peers.StartUpstream(t, peers.Script(fmt.Sprintf("HTTP/1.1 %s x\r\nContent-Length: 0\r\n\r\n", tt.status)))
			p := proxytest.Start(t, u, func(c *proxy.Config) {
				c.AccessLog, c.Log, c.ReadHeaderTimeout = true, log, 300*time.Millisecond
				c.Default.Forward = forward.Settings{Host: forward.HostRule{Mode: forward.HostPreserve}, StripPrefix: "/api"}
			})
			res, _, err := p.Dial().Send(tt.sent).Response("GET")
			if err != nil {
				t.Fatal(err)
			}
			p.Stop()
			id := res.Header.Get("X-Request-Id")
			if len(res.Header.Values("X-Request-Id")) != 1 || id == "" || tt.id != "" && id != tt.id {
				t.Errorf("X-Request-Id: %q", res.Header.Values("X-Request-Id"))
			}
			line := lines.String()
			if strings.Count(line, `"msg":"request"`) != 1 {
				t.Errorf("expected one line: %s", line)
			}
			for _, want := range []string{`"status":` + tt.status + `,`, `"request_id":"` + id + `"`, `"reason":"` + tt.reason + `"`} {
				if !strings.Contains(line, want) {
					t.Errorf("no %s in %s", want, line)
				}
			}
		})
	}
}

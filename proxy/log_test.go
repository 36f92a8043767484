package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/proxy/forward"
)

// logLines makes a logger that writes JSON lines to the returned buffer.
func logLines() (*zap.Logger, *syncBuffer) {
	b := &syncBuffer{}
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg", LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.SecondsDurationEncoder})
	return zap.New(zapcore.NewCore(enc, b, zap.InfoLevel)), b
}

func TestTheAccessLogTellsEveryAttemptAndNoSecrets(t *testing.T) {
	log, lines := logLines()
	u := startUpstream(t, script(bad503, "", ok200))
	p := startProxy(t, u, func(c *Config) { c.AccessLog, c.Log = true, log })
	p.dial().send("GET /a?token=secret HTTP/1.1\r\nHost: a\r\nX-Request-Id: my-id\r\n\r\n").want(200, "ok")
	p.seen.outcome(t, 0)
	soon(t, "line", func() bool { return strings.Contains(lines.String(), "\n") })
	line := lines.String()
	for _, want := range []string{
		`"msg":"request"`, `"path":"/a?..."`, `"request_id":"my-id"`, `"outcome":"recovered"`,
		`{"address":"` + u.Addr().String() + `","status":503,"class":"unknown_if_processed","duration_seconds":0.`, `","cause":"reset","class":"unknown_if_processed","duration_seconds":0.`, `","status":200,"class":"ok","duration_seconds":0.`,
		`,"wait_seconds":0.00`, `"outcome":"recovered","request_bytes":0,"response_bytes":2,"duration_seconds":0.`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("the line has no %s: %s", want, line)
		}
	}
	if strings.Contains(line, "secret") {
		t.Errorf("the line shows the query: %s", line)
	}
}

func TestALineShowsTheBeginningOfALongPath(t *testing.T) {
	log, lines := logLines()
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { c.AccessLog, c.Log = true, log })
	p.dial().send("GET /"+strings.Repeat("a", 50000)+"?secret HTTP/1.1\r\nHost: a\r\nX-Request-Id: "+strings.Repeat("i", 300)+"\r\n\r\n").want(200, "ok")
	p.seen.outcome(t, 0)
	soon(t, "line", func() bool { return strings.Contains(lines.String(), "\n") })
	line := lines.String()
	if !strings.Contains(line, `aa…?..."`) {
		t.Errorf("the path does not end in dots: %.300s", line)
	}
	if len(line) > 2<<10 {
		t.Errorf("a line of %d bytes", len(line))
	}
}

// Wherever a client says them, these bytes stay within the one line of its request.
func TestNoClientForgesALogLine(t *testing.T) {
	log, lines := logLines()
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { c.AccessLog, c.Log = true, log })
	c := p.dial()
	hostile := []string{`"}{"msg":"forged"}`, `","forged":"`, `\`, `\"`, `\u000a{"msg":"forged"}`, "%0d%0a%7b%22msg%22:%22forged%22%7d",
		"\u0085", "\u009b31m", "\u2028\u2029", "\u202e", "\ufeff", "\xff\xfe", "\xc0\x8a", "\xed\xa0\x80", "\t", strings.Repeat("\xff", 10000)}
	paths := []string{`/"}{"msg":"forged"}`, `/","forged":"`, "/%0d%0a%7b%22msg%22:%22forged%22%7d", "/%1b[31m", "/\u202e"} // the parser refuses others
	for i, text := range hostile {
		c.send("GET "+paths[i%len(paths)]+"?secret HTTP/1.1\r\nHost: a\r\nAuthorization: secret\r\nCookie: secret\r\nX-Request-Id: "+text+
			"\r\nUser-Agent: "+text+"\r\nX-Forwarded-For: "+text+"\r\nTraceparent: "+text+"\r\n\r\n").want(200, "ok")
	}
	p.stop()
	all := strings.Split(strings.TrimSuffix(lines.String(), "\n"), "\n")
	if len(all) != len(hostile) {
		t.Errorf("%d lines about %d requests", len(all), len(hostile))
	}
	for _, line := range all {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["msg"] != "request" || fields["forged"] != nil {
			t.Errorf("%v: %.500s", err, line)
		}
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' }) {
			t.Errorf("control characters or bytes that are no text: %.500q", line)
		}
		if strings.Contains(line, "secret") || len(line) > 4<<10 {
			t.Errorf("a secret, or %d bytes: %.500s", len(line), line)
		}
	}
}

func TestGivenUpRequestsAreLoggedUpToTheLimitThenCounted(t *testing.T) {
	log, lines := logLines()
	u := startUpstream(t, script(bad503))
	p := startProxy(t, u, func(c *Config) {
		c.Log, c.GaveUpLogPerMinute = log, 2
		c.Default.Policy.MaxRetries = 0
	})
	c := p.dial()
	for range 10 {
		c.send(get("/")).want(503, "busy")
	}
	p.seen.outcome(t, 9)
	p.stop()
	given := strings.Count(lines.String(), `"msg":"request given up"`)
	if given < 2 || given > 4 { // 4: where a minute ended meanwhile
		t.Errorf("%d lines for 10 requests given up, want 2 a minute", given)
	}
	if want := fmt.Sprintf(`"msg":"more requests given up, lines suppressed","route":"default","count":%d}`, 10-given); given == 2 && !strings.Contains(lines.String(), want) {
		t.Errorf("at the end there is no line %s in %s", want, lines.String())
	}
}

func TestSuppressedLinesAreCountedWhenTheirConfigurationIsReplaced(t *testing.T) {
	log, lines := logLines()
	var again *Config
	p := startProxy(t, startUpstream(t, script(bad503)), func(c *Config) {
		c.Log, c.GaveUpLogPerMinute = log, 0
		c.Default.Policy.MaxRetries = 0
		again = c
	})
	p.dial().send(get("/")).want(503, "busy")
	p.seen.outcome(t, 0)
	soon(t, "the request's end", func() bool { return p.drain.active.Load() == 0 })
	if err := p.Reload(again); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(lines.String(), `lines suppressed","route":"default","count":1}`) {
		t.Errorf("no count in %s", lines.String())
	}
}

func TestTheAccessLogHasOneLineForAFailedRequestToo(t *testing.T) {
	log, lines := logLines()
	p := startProxy(t, startUpstream(t, script(bad503)), func(c *Config) {
		c.Log, c.AccessLog, c.GaveUpLogPerMinute = log, true, 10
		c.Default.Policy.MaxRetries = 0
	})
	p.dial().send(get("/")).want(503, "busy")
	p.seen.outcome(t, 0)
	p.stop()
	if n := strings.Count(lines.String(), "\n"); n != 1 || !strings.Contains(lines.String(), `"level":"warn"`) {
		t.Errorf("%d lines, expected one at warn:\n%s", n, lines.String())
	}
}

func TestAnOutageIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	log, lines := logLines()
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) { withBreaker(c); c.Log = log })
	c := p.dial().send(get("/"))
	soon(t, "line of the outage", func() bool {
		return strings.Contains(lines.String(), `"msg":"circuit breaker opened","upstream":"http://`+permit.addr+`","by":"refused"`)
	})
	serveListener(t, permit.open(), script(ok200))
	c.want(200, "ok")
	soon(t, "line of its end", func() bool {
		c.send(get("/")).want(200, "ok")
		return strings.Contains(lines.String(), `"msg":"circuit breaker closed"`)
	})
}

func TestTheAccessLogTellsWhatTheRequestWas(t *testing.T) {
	log, lines := logLines()
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) { c.AccessLog, c.Log = true, log })
	c := p.dial()
	c.send("PUT /a HTTP/1.1\r\nHost: shop.example:80\r\nUser-Agent: curl/8\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nContent-Length: 5\r\n\r\nhello").want(200, "ok")
	c.send("PUT /a HTTP/1.1\r\nHost: shop.example:80\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2\r\nyo\r\n0\r\n\r\n").want(200, "ok")
	p.seen.outcome(t, 1)
	p.stop()
	all := strings.Split(lines.String(), "\n")
	if len(all) != 3 {
		t.Fatalf("%d lines, expected one per request:\n%s", len(all)-1, lines.String())
	}
	for i, wants := range [][]string{
		{`"method":"PUT","host":"shop.example:80","path":"/a","status":200`, `"request_bytes":5,"response_bytes":2,`, `"user_agent":"curl/8"`, `"trace_id":"0af7651916cd43dd8448eb211c80319c"`},
		{`"request_bytes":7,"response_bytes":2,`, `"user_agent":"","request_id":"`, `"trace_id":""`},
	} {
		for _, want := range wants {
			if !strings.Contains(all[i], want) {
				t.Errorf("line %d has no %s: %s", i, want, all[i])
			}
		}
	}
}

func TestTheAccessLogCountsOurOwnAnswersBytes(t *testing.T) {
	log, lines := logLines()
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) { c.AccessLog, c.Log = true, log })
	_, body, err := p.dial().send(get("/")).response("GET")
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
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
		"nothing to retry": {get("/"), "", "501", "not_in_retry_on"},
		"served":           {"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n", "mine", "200", ""},
	} {
		t.Run(name, func(t *testing.T) {
			log, lines := logLines()
			u := startUpstream(t, script(fmt.Sprintf("HTTP/1.1 %s x\r\nContent-Length: 0\r\n\r\n", tt.status)))
			p := startProxy(t, u, func(c *Config) {
				c.AccessLog, c.Log, c.ReadHeaderTimeout = true, log, 300*time.Millisecond
				c.Default.Forward = forward.Settings{Host: forward.HostPreserve, StripPrefix: "/api"}
			})
			res, _, err := p.dial().send(tt.sent).response("GET")
			if err != nil {
				t.Fatal(err)
			}
			p.stop()
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

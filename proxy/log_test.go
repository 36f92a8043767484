package proxy

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLines makes a logger that writes JSON lines to the returned buffer.
func logLines() (*zap.Logger, *syncBuffer) {
	b := &syncBuffer{}
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg", EncodeDuration: zapcore.StringDurationEncoder})
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
		`"msg":"request"`, `"path":"/a?..."`, `"request_id":"my-id"`, `"outcome":"rescued"`,
		`{"status":503,"class":"rejected","ms":`, `{"cause":"reset","class":"unknown","ms":`, `{"status":200,"class":"ok","ms":`, `"wait_ms":1`,
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
	if !strings.Contains(line, `aa...?..."`) {
		t.Errorf("the path does not end in dots: %.300s", line)
	}
	if len(line) > 2<<10 {
		t.Errorf("a line of %d bytes", len(line))
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
	if n := strings.Count(lines.String(), `"msg":"request given up"`); n < 2 || n > 4 { // 4: where a minute ended meanwhile
		t.Errorf("%d lines for 10 requests given up, want 2 a minute", n)
	}
}

func TestAnOutageIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	log, lines := logLines()
	place := reservePort(t)
	p := startProxyTo(t, "http://"+place.addr, func(c *Config) { guarded(c); c.Log = log })
	c := p.dial().send(get("/"))
	soon(t, "line of the outage", func() bool {
		return strings.Contains(lines.String(), `"msg":"the upstream is taken for down","upstream":"http://`+place.addr+`","by":"refused"`)
	})
	serveListener(t, place.open(), script(ok200))
	c.want(200, "ok")
	soon(t, "line of its end", func() bool {
		c.send(get("/")).want(200, "ok")
		return strings.Contains(lines.String(), `"msg":"the upstream is back"`)
	})
}

package settings_test

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// process is one process, whose configuration can be reloaded.
type process struct {
	*request.Process
	t   *testing.T
	now *settings.Settings
}

func start(t *testing.T, change func(c *settings.Config)) *process {
	t.Helper()
	p := &process{Process: request.NewProcess(1<<20, request.Hooks{}), t: t}
	p.reload(change)
	return p
}

// reload makes the usual configuration with that change the one in force, and returns it.
func (p *process) reload(change func(c *settings.Config)) *settings.Settings {
	p.t.Helper()
	config := requesttest.Config(p.t)
	if change != nil {
		change(config)
	}
	p.now = requesttest.Prepare(p.t, config, p.Process, p.now)
	return p.now
}

func target(t testing.TB, text string) upstream.Target {
	t.Helper()
	to, err := upstream.ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// also adds a route like the default one, for requests of one path.
func also(c *settings.Config, name string, change func(r *settings.Route)) {
	r := c.Default
	r.Name, r.Match = name, route.Match{Path: "/" + name}
	if change != nil {
		change(&r)
	}
	c.Routes = append(c.Routes, r)
}

func perMinute(t testing.TB, rate string, by admission.Sharing) admission.RateLimit {
	t.Helper()
	r, err := ratelimit.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	return admission.RateLimit{Rate: r, Wait: time.Second, SharedBy: by}
}

// parsed is a request with more headers, each a line.
func parsed(t testing.TB, target string, lines ...string) *http1.Request {
	t.Helper()
	text := "GET " + target + " HTTP/1.1\r\nHost: a\r\n"
	for _, line := range lines {
		text += line + "\r\n"
	}
	q := &http1.Request{}
	if _, err := q.Parse([]byte(text+"\r\n"), http1.Limits{HeaderBytes: 10_000, Headers: 100}); err != nil {
		t.Fatal(err)
	}
	return q
}

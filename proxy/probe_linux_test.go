package proxy

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
)

// probed is guarded, with a path for probes.
func probed(c *Config) {
	withBreaker(c)
	c.Default.Probe = admission.Probe{Path: readyPath}
}

// readiness is an upstream that answers probes with what verdict says, and all
// else with 200. It counts what came before it said yes.
type readiness struct {
	mu      sync.Mutex
	asked   int
	yes     bool
	tooSoon int
	last    string
}

func (r *readiness) handle(verdict func(asked int) string) func(c *upConn) {
	return func(c *upConn) {
		for {
			headers := c.head()
			if headers == "" {
				return
			}
			discardBody(c, headers)
			if !strings.HasPrefix(headers, "GET "+readyPath+" ") {
				r.mu.Lock()
				if !r.yes {
					r.tooSoon++
				}
				r.mu.Unlock()
				c.say(ok200)
				continue
			}
			r.mu.Lock()
			r.asked++
			r.last = headers
			asked := r.asked
			r.mu.Unlock()
			response := verdict(asked)
			r.mu.Lock()
			r.yes = r.yes || strings.HasSuffix(response, ok200)
			r.mu.Unlock()
			c.say("%s", response)
			return
		}
	}
}

func (r *readiness) probes() int { r.mu.Lock(); defer r.mu.Unlock(); return r.asked }

// While the breaker is open, only probes are sent, even if connections work again. No request is
// used as a probe, whatever its method, and no probe counts as a request.
func TestAProbeByPathDetectsTheUpstreamsReturn(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, probed)
	const clients = 20
	var all []*client
	for i := range clients {
		request := get("/")
		if i%2 == 1 {
			request = post("x")
		}
		all = append(all, p.dial().send(request))
	}
	eventually(t, "clients were held", func() bool { return p.guard().Queued == clients })
	eventually(t, "a probe was refused", func() bool { return p.Stats().Upstreams[0].Probed[breaker.ProbeUnreachable] > 0 })
	var r readiness
	u := serveListener(t, permit.open(), r.handle(func(asked int) string {
		return []string{bad503, bad429, bad503, "HTTP/1.1 103 Hints\r\n\r\n" + ok200}[min(asked, 4)-1]
	}))
	for _, c := range all {
		c.want(200, "ok")
	}
	p.seen.outcome(t, clients-1)
	if r.tooSoon > 0 || r.probes() < 4 {
		t.Errorf("%d requests came before a good answer to a probe, of %d", r.tooSoon, r.probes())
	}
	for _, field := range []string{"Host: " + permit.addr + "\r\n", "User-Agent: retryproxy-probe\r\n", "Connection: close\r\n"} {
		if !strings.Contains(r.last, field) {
			t.Errorf("a probe without %q: %q", field, r.last)
		}
	}
	if got, want := u.sends()-r.probes(), clients; got != want {
		t.Errorf("%d requests came, want %d", got, want)
	}
	s := p.Stats().Upstreams[0]
	if got := s.Probed; !s.HasProbe || got[breaker.ProbeFailing] != 3 || got[breaker.ProbeBack] == 0 || got[breaker.ProbeUnreachable] == 0 {
		t.Errorf("probes counted as %v", got)
	}
	defer p.seen.lock()()
	if p.seen.began != clients || len(p.seen.outcomes) != clients {
		t.Errorf("%d requests and %d outcomes, want %d of both: probes are none", p.seen.began, len(p.seen.outcomes), clients)
	}
}

// A probe that hangs stays in flight and nothing else is sent. Its response, however late, closes
// the breaker.
func TestTheLateResponseOfAHungProbeClosesTheBreaker(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, probed)
	held := p.dial().send(post("x"))
	eventually(t, "clients were held", func() bool { return p.guard().Queued == 1 })
	response := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(response) })
	var r readiness
	u := serveListener(t, permit.open(), r.handle(func(int) string { <-response; return ok200 }))
	t.Cleanup(goOn) // before the upstream is stopped
	eventually(t, "a probe was sent", func() bool { return r.probes() == 1 })
	others := p.dial().send(get("/"))
	eventually(t, "both clients were held", func() bool { return p.guard().Queued == 2 })
	if g := p.guard(); g.Breaker != breaker.HalfOpen || u.sends() != 1 {
		t.Errorf("breaker %v, %d sends while the probe hangs", g.Breaker, u.sends())
	}
	goOn()
	held.want(200, "ok")
	others.want(200, "ok")
	if r.probes() != 1 || r.tooSoon > 0 {
		t.Errorf("%d probes, %d requests before the response", r.probes(), r.tooSoon)
	}
}

// A probe that hangs keeps neither a reload nor the end waiting.
func TestAHungProbeEndsWithItsUpstream(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, probed)
	c := p.dial().send(get("/"))
	eventually(t, "clients were held", func() bool { return p.guard().Queued == 1 })
	never := make(chan struct{})
	var r readiness
	serveListener(t, permit.open(), r.handle(func(int) string { <-never; return "" }))
	t.Cleanup(func() { close(never) }) // before the upstream is stopped
	eventually(t, "a probe was sent", func() bool { return r.probes() == 1 })
	c.Close()
	eventually(t, "the place was freed", func() bool { return p.guard().Queued == 0 })
	next := testConfig(t, "http://"+startUpstream(t, script(ok200)).Addr().String(), p.seen)
	reloaded := make(chan error, 1)
	go func() { reloaded <- p.Reload(next) }()
	select {
	case err := <-reloaded:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(admission.LateResponseTimeout / 2):
		t.Error("a reload waits for a probe that hangs")
	}
}

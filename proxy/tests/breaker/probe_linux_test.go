package breaker

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// probed is guarded, with a path for probes.
func probed(c *proxy.Config) {
	peers.WithBreaker(c)
	c.Default.Probe = admission.Probe{Path: peers.ReadyPath}
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

func (r *readiness) handle(verdict func(asked int) string) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		for {
			headers := c.Head()
			if headers == "" {
				return
			}
			peers.DiscardBody(c, headers)
			if !strings.HasPrefix(headers, "GET "+peers.ReadyPath+" ") {
				r.mu.Lock()
				if !r.yes {
					r.tooSoon++
				}
				r.mu.Unlock()
				c.Say(peers.OK200)
				continue
			}
			r.mu.Lock()
			r.asked++
			r.last = headers
			asked := r.asked
			r.mu.Unlock()
			response := verdict(asked)
			r.mu.Lock()
			r.yes = r.yes || strings.HasSuffix(response, peers.OK200)
			r.mu.Unlock()
			c.Say("%s", response)
			return
		}
	}
}

func (r *readiness) probes() int { r.mu.Lock(); defer r.mu.Unlock(); return r.asked }

// While the breaker is open, only probes are sent, even if connections work again. No request is
// used as a probe, whatever its method, and no probe counts as a request.
func TestAProbeByPathDetectsTheUpstreamsReturn(t *testing.T) {
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, probed)
	const clients = 20
	var all []*peers.Client
	for i := range clients {
		request := peers.Get("/")
		if i%2 == 1 {
			request = peers.Post("x")
		}
		all = append(all, p.Dial().Send(request))
	}
	peers.Soon(t, "clients were held", func() bool { return p.Guard().Queued == clients })
	peers.Soon(t, "a probe was refused", func() bool { return p.Stats().Upstreams[0].Probed[breaker.ProbeUnreachable] > 0 })
	var r readiness
	u := peers.ServeListener(t, permit.Open(), r.handle(func(asked int) string {
		return []string{peers.Bad503, peers.Bad429, peers.Bad503, "HTTP/1.1 103 Hints\r\n\r\n" + peers.OK200}[min(asked, 4)-1]
	}))
	for _, c := range all {
		c.Want(200, "ok")
	}
	p.Seen.Outcome(t, clients-1)
	if r.tooSoon > 0 || r.probes() < 4 {
		t.Errorf("%d requests came before a good answer to a probe, of %d", r.tooSoon, r.probes())
	}
	for _, field := range []string{"Host: " + permit.Addr + "\r\n", "User-Agent: retryproxy-probe\r\n", "Connection: close\r\n"} {
		if !strings.Contains(r.last, field) {
			t.Errorf("a probe without %q: %q", field, r.last)
		}
	}
	if got, want := u.Sends()-r.probes(), clients; got != want {
		t.Errorf("%d requests came, want %d", got, want)
	}
	s := p.Stats().Upstreams[0]
	if got := s.Probed; !s.HasProbe || got[breaker.ProbeFailing] != 3 || got[breaker.ProbeBack] == 0 || got[breaker.ProbeUnreachable] == 0 {
		t.Errorf("probes counted as %v", got)
	}
	defer p.Seen.Lock()()
	if p.Seen.Began != clients || len(p.Seen.Outcomes) != clients {
		t.Errorf("%d requests and %d outcomes, want %d of both: probes are none", p.Seen.Began, len(p.Seen.Outcomes), clients)
	}
}

// A probe that hangs stays in flight and nothing else is sent. Its response, however late, closes
// the breaker.
func TestTheLateResponseOfAHungProbeClosesTheBreaker(t *testing.T) {
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, probed)
	held := p.Dial().Send(peers.Post("x"))
	peers.Soon(t, "clients were held", func() bool { return p.Guard().Queued == 1 })
	response := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(response) })
	var r readiness
	u := peers.ServeListener(t, permit.Open(), r.handle(func(int) string { <-response; return peers.OK200 }))
	t.Cleanup(goOn) // before the upstream is stopped
	peers.Soon(t, "a probe was sent", func() bool { return r.probes() == 1 })
	others := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "both clients were held", func() bool { return p.Guard().Queued == 2 })
	if g := p.Guard(); g.Breaker != breaker.HalfOpen || u.Sends() != 1 {
		t.Errorf("breaker %v, %d sends while the probe hangs", g.Breaker, u.Sends())
	}
	goOn()
	held.Want(200, "ok")
	others.Want(200, "ok")
	if r.probes() != 1 || r.tooSoon > 0 {
		t.Errorf("%d probes, %d requests before the response", r.probes(), r.tooSoon)
	}
}

// A probe that hangs keeps neither a reload nor the end waiting.
func TestAHungProbeEndsWithItsUpstream(t *testing.T) {
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, probed)
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "clients were held", func() bool { return p.Guard().Queued == 1 })
	never := make(chan struct{})
	var r readiness
	peers.ServeListener(t, permit.Open(), r.handle(func(int) string { <-never; return "" }))
	t.Cleanup(func() { close(never) }) // before the upstream is stopped
	peers.Soon(t, "a probe was sent", func() bool { return r.probes() == 1 })
	c.Close()
	peers.Soon(t, "the place was freed", func() bool { return p.Guard().Queued == 0 })
	next := peers.NewConfig(t, "http://"+peers.StartUpstream(t, peers.Script(peers.OK200)).Addr().String(), p.Seen)
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

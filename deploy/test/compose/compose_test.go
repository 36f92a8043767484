package compose

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// outage is how long the upstream is away, and hold is RETRYPROXY_QUEUE_TIMEOUT of
// the compose file: no request may take longer.
const (
	outage = 6 * time.Second
	hold   = 20 * time.Second
)

func TestStack(t *testing.T) {
	engine.Asked(t, "compose")
	s := up(t, "docker-compose.yml", "upstream", []string{"golang", "prometheus", "grafana"},
		[]string{"RETRYPROXY_IMAGE=" + engine.Image(t), "SHOP_PORT=0", "PROMETHEUS_PORT=0", "GRAFANA_PORT=0"})
	t.Run("all counts are the same from the clients to the upstream", s.countsAgree)
	t.Run("Prometheus took the alert rules", s.rulesAreLoaded)
	for _, f := range faults {
		t.Run(f.name+" of the upstream costs no idempotent request", func(t *testing.T) { s.survives(t, f) })
	}
	t.Run("counts are the same after the faults", s.frontCountsAgree)
	t.Run("the dashboard shows them", s.dashboardShows)
	t.Run("the page's commands work", s.followsThePage)
	t.Run("a restart of a sidecar costs no request", s.sidecarsRestart)
}

// fault is something that happens to the upstream's container.
type fault struct {
	name         string
	strike, heal func(t *testing.T, s *stack)
}

func docker(args ...string) func(*testing.T, *stack) {
	return func(t *testing.T, s *stack) {
		t.Helper()
		r := strings.NewReplacer("UPSTREAM", s.ids["upstream"], "NETWORK", s.project+"_back")
		filled := make([]string, len(args))
		for i, a := range args {
			filled[i] = r.Replace(a)
		}
		engine.Docker(t, filled...)
	}
}

var faults = []fault{
	{"pause", docker("pause", "UPSTREAM"), docker("unpause", "UPSTREAM")},
	{"kill", docker("kill", "UPSTREAM"), docker("start", "UPSTREAM")},
	{"restart", docker("restart", "UPSTREAM"), nil},
	{"network disconnect", docker("network", "disconnect", "NETWORK", "UPSTREAM"),
		docker("network", "connect", "--alias", "upstream", "NETWORK", "UPSTREAM")},
}

// survives lets the fault happen under traffic. What clients send that may be
// repeated has to be answered well, and within the hold time.
func (s *stack) survives(t *testing.T, f fault) {
	s.clients(t, http.MethodPost, "/resume")
	s.awaitTraffic(t)
	began := time.Now()
	f.strike(t, s)
	if f.heal != nil {
		time.Sleep(outage)
		f.heal(t, s)
	}
	away := time.Since(began)
	s.awaitTraffic(t)
	saw := s.clients(t, http.MethodPost, "/pause")

	unsafe := 0
	for _, e := range saw.Since.Failures {
		if e.Safe {
			t.Errorf("%s %s sent at %s got %d after %.1f s: %s", e.Method, e.Path, e.Began.Format("15:04:05.000"), e.Code, e.Took, e.Why)
			continue
		}
		unsafe++
		t.Logf("POST without a key: %d after %.1f s: %s", e.Code, e.Took, e.Why)
	}
	slowest := time.Duration(saw.Since.Slowest * float64(time.Second))
	if slowest > hold || f.heal != nil && slowest < outage*9/10 {
		t.Errorf("the slowest request took %v; expected at most %v, and that those in flight when it began wait for its end", slowest, hold)
	}
	t.Logf("| %s | %.1f s | %d | 0 | %d | %.1f s |", f.name, away.Seconds(), saw.Since.Sent, unsafe, slowest.Seconds())
}

// sidecarsRestart restarts both, one after the other, under traffic that the
// upstream itself does not fail: no request of any kind may be lost.
func (s *stack) sidecarsRestart(t *testing.T) {
	s.clients(t, http.MethodPost, "/pause")
	s.compose(t, []string{"FAIL_EVERY=0"}, "up", "--detach", "--no-build", "--no-deps", "upstream")
	s.find(t, "upstream")
	s.awaitHealth(t, "upstream")
	s.clients(t, http.MethodPost, "/resume")
	for _, service := range []string{"inbound-a", "inbound-b"} {
		s.awaitTraffic(t)
		s.awaitCount(t, `sum(retryproxy_requests_total{instance="`+service+`:9797"}) > 0`)
		began := time.Now()
		s.compose(t, nil, "restart", service)
		t.Logf("%s was restarted in %.1f s", service, time.Since(began).Seconds())
		s.awaitHealth(t, service)
		s.checkEnd(t, service, began)
	}
	s.awaitTraffic(t)
	saw := s.clients(t, http.MethodPost, "/pause")
	for _, e := range saw.Since.Failures {
		t.Errorf("%s %s sent at %s got %d after %.1f s: %s", e.Method, e.Path, e.Began.Format("15:04:05.000"), e.Code, e.Took, e.Why)
	}
	t.Logf("%d requests, the slowest took %.1f s", saw.Since.Sent, saw.Since.Slowest)
}

// checkEnd wants the container's last end to have been an orderly one.
func (s *stack) checkEnd(t *testing.T, service string, since time.Time) {
	t.Helper()
	const stamp = "2006-01-02T15:04:05.000000000Z07:00"
	got := engine.Docker(t, "events", "--since", since.Format(stamp), "--until", time.Now().Format(stamp),
		"--filter", "container="+s.ids[service], "--filter", "event=die", "--format", "{{.Actor.Attributes.exitCode}}")
	if got != "0" {
		t.Errorf("%s ended with code %q", service, got)
	}
}

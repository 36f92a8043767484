package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/ctl/sim"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

var all = View{Good: true, Errors: true, Load: true}

func play(t *testing.T, change func(*Wish)) *Simulation {
	t.Helper()
	w := Default()
	change(&w)
	runs, err := w.Runs()
	if err != nil {
		t.Fatal(err)
	}
	return Play(&w, runs)
}

// figure returns the whole figure as JSON.
func figure(t *testing.T, s *Simulation) string {
	t.Helper()
	f := s.Figure(all)
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// opened returns how often breakers opened, by evidence.
func opened(l Line) map[string]uint64 {
	times := map[string]uint64{}
	for i := range l.Result.Guards {
		for by, n := range l.Result.Guards[i].Opened {
			if n > 0 {
				times[breaker.OpenedBy(by).String()] += n
			}
		}
	}
	return times
}

// As in the live storm, only a limit or a breaker ends it; more retries do not.
func TestWaysEndAsTheyDoLive(t *testing.T) {
	s := play(t, func(w *Wish) {
		w.Through, w.Outage = []string{"direct", "retries", "haproxy", "retryproxy"}, "503"
	})
	var ended []bool
	for i := range s.Lines {
		ended = append(ended, s.Lines[i].Good != sim.Never)
	}
	if ended[0] || ended[1] || !ended[2] || !ended[3] {
		t.Errorf("ended: %v, want not directly nor through retries, but through haproxy and retryproxy", ended)
	}
	direct, retries, retryproxy := s.Lines[0].Load, s.Lines[1].Load, s.Lines[3].Load
	if retries < direct || retryproxy > 1.2 {
		t.Errorf("requests per good response: %.2f directly, %.2f through retries, %.2f through retryproxy", direct, retries, retryproxy)
	}
	if with, without := opened(s.Lines[3]), opened(s.Lines[0]); len(with) == 0 || len(without) != 0 {
		t.Errorf("breakers opened %v with retryproxy, %v without", with, without)
	}
}

func TestAStrategyOfClientsGrowsFromTheirPause(t *testing.T) {
	s := play(t, func(w *Wish) {
		w.Through, w.Down, w.Length = []string{"direct"}, 20*time.Second, 5*time.Minute
		w.ClientBackoffs = []string{"naive,normal:factor=2.71828:max=5m:from=pause,normal:base=1s:factor=2.71828:max=5m"}
	})
	naive, pause, base := s.Lines[0], s.Lines[1], s.Lines[2]
	if naive.Errors != sim.Never || base.Errors != sim.Never {
		t.Errorf("errors under 5 %% after %v with naive clients and %v without :from=pause, want never", naive.Errors, base.Errors)
	}
	if pause.Errors > 30*time.Second || pause.Good == sim.Never {
		t.Errorf("from the pause: errors under 5 %% after %v, good again after %v", pause.Errors, pause.Good)
	}
	if want := "direct, clients normal factor=2.71828 max=5m from the pause"; pause.Label != want {
		t.Errorf("label %q, want %q", pause.Label, want)
	}
}

// docs/explanation/backoff.md shows both.
func TestAShortAcceptQueueKeepsTheBacklogAway(t *testing.T) {
	for queue, ends := range map[int]bool{0: false, 128: true} {
		s := play(t, func(w *Wish) {
			w.Through, w.ClientBackoffs, w.AcceptQueue = []string{"direct"}, []string{"full-jitter:max=10s"}, queue
		})
		if d := s.Lines[0].Errors; (d != sim.Never) != ends {
			t.Errorf("queue %d: errors under 5 %% after %v, want %v", queue, d, ends)
		}
		var b bytes.Buffer
		s.Text(&b, View{Good: true}, terminal.Screen{Width: 80})
		if want := fmt.Sprintf("After 15s it is stopped, and its kernel queues up to %d connections for 40s; then", cmp.Or(queue, 4096)); !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &b)
		}
	}
}

func TestSameSeedSameSimulation(t *testing.T) {
	with := func(seed uint64) string {
		return figure(t, play(t, func(w *Wish) { w.Seed, w.ClientBackoffs = seed, []string{"naive,full-jitter:max=10s"} }))
	}
	first := with(3)
	if first != with(3) {
		t.Error("two simulations with one seed differ")
	}
	if first == with(4) {
		t.Error("two seeds gave the same simulation")
	}
}

func TestEveryWayWithEveryManner(t *testing.T) {
	w := Default()
	w.Through, w.Backoffs = []string{"direct", "retries"}, []string{"fixed:base=2s,none"}
	w.ClientBackoffs = []string{"once", "additive"}
	w.Own = []Own{{"route a", sim.Proxy{QueueMax: 7}}}
	runs, err := w.Runs()
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, r := range runs {
		labels = append(labels, r.Label)
	}
	want := "direct, clients once|direct, clients additive|" +
		"retries, fixed base=2s, clients once|retries, fixed base=2s, clients additive|retries, none, clients once|retries, none, clients additive|" +
		"route a, fixed base=2s, clients once|route a, fixed base=2s, clients additive|route a, none, clients once|route a, none, clients additive"
	if got := strings.Join(labels, "|"); got != want {
		t.Errorf("played\n%s\nwant\n%s", got, want)
	}
	once, additive, fixed, own := runs[0].Config, runs[1].Config, runs[2].Config, runs[6].Config
	if once.Clients.RetryAfter != 0 || additive.Clients.Backoff == nil || once.Clients.Backoff != nil {
		t.Errorf("clients: once %+v, additive %+v", once.Clients, additive.Clients)
	}
	if got := fixed.Proxy.Policy.Backoff.Wait(backoff.Step{}, backoff.Shared()); got != 2*time.Second {
		t.Errorf("fixed:base=2s waits %v", got)
	}
	if own.Proxy.QueueMax != 7 || own.Via != sim.ViaProxy {
		t.Errorf("the user's own settings are not played: %+v", own.Proxy)
	}
}

func TestWhatIsGivenGoesBeforeWhatFits(t *testing.T) {
	w := Default()
	w.Clients, w.Free, w.Proxies = 5000, 40, 3
	c := w.config()
	if c.Server.Free != 40 || c.Slots != 40 || c.Proxies != 3 || c.Server.Most != 100_000 || c.Server.AcceptQueue != 20_480 {
		t.Errorf("%+v", c)
	}
	w.Free, w.Proxies, w.AcceptQueue = 0, 0, 128
	if c = w.config(); c.Server.AcceptQueue != 128 || c.Server.Free != 150 || c.Server.Step != 75 || c.Slots != 150 || c.Proxies != 5 {
		t.Errorf("%+v", c)
	}
}

func TestWhatIsWrongIsTold(t *testing.T) {
	for _, tc := range []struct {
		change func(*Wish)
		want   string
	}{
		{func(w *Wish) { w.Through = []string{"nginx"} }, `--through: "nginx" is not one of direct`},
		{func(w *Wish) { w.ClientBackoffs = []string{"naive,hasty"} }, `--client-backoff: expected naive, once or a strategy: unknown backoff "hasty"`},
		{func(w *Wish) { w.ClientBackoffs = []string{"full-jitter:from=pause"} }, "--client-backoff: full-jitter:from=pause: only normal and decorrelated grow"},
		{func(w *Wish) { w.ClientBackoffs = []string{"hasty:from=pause"} }, `or a strategy: unknown backoff "hasty"`},
		{func(w *Wish) { w.Backoffs = []string{"hasty"} }, `unknown backoff "hasty"`},
		{func(w *Wish) { w.Backoffs, w.Through = []string{"fixed"}, []string{"direct", "haproxy"} }, "no way of --through retries"},
		{func(w *Wish) { w.Through = []string{"direct", "direct"} }, "direct is given twice"},
		{func(w *Wish) { w.ClientBackoffs = []string{"naive,once,fixed,slots,ratio"} }, "15 storms to play, expected at most 12"},
		{func(w *Wish) { w.Outage = "flood" }, `--outage: "flood" is not one of stop`},
		{func(w *Wish) { w.Clients = 0 }, "--clients: expected 1 to 1000000"},
		{func(w *Wish) { w.Clients, w.Proxies = 3, 4 }, "--proxies: expected"},
		{func(w *Wish) { w.Length = 55 * time.Second }, "--length=55s: expected"},
		{func(w *Wish) { w.Length = 25 * time.Hour }, "--length: expected at most"},
		{func(w *Wish) { w.Peace = 0 }, "--peace and --down: expected 1s or more"},
		{func(w *Wish) { w.Every, w.Base = 0, 0 }, "--every: expected 1ms to 24h0m0s\n--base: expected"},
		{func(w *Wish) { w.Free, w.AcceptQueue = -1, -1 }, "--free: expected a number above 0\n--accept-queue: expected"},
	} {
		w := Default()
		tc.change(&w)
		if runs, err := w.Runs(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d runs, error %v, want %q", len(runs), err, tc.want)
		}
	}
}

func TestABreakerOpensOnceForASilentServer(t *testing.T) {
	s := play(t, func(w *Wish) { w.Through, w.Clients = []string{"direct", "retryproxy"}, 500 })
	direct, through := s.Lines[0], s.Lines[1]
	if direct.Good != sim.Never || len(direct.Result.Guards) != 0 {
		t.Errorf("direct: good again after %v, %d proxies; want never and none", direct.Good, len(direct.Result.Guards))
	}
	if by := opened(through); through.Good == sim.Never || len(by) != 1 || by["stall"] != 1 {
		t.Errorf("retryproxy: good again after %v, breaker opened %v; want a time, and once by stall", through.Good, by)
	}
}

func TestNothingGoodIsToldToo(t *testing.T) {
	s := play(t, func(w *Wish) {
		w.Through, w.Clients, w.Patience = []string{"direct"}, 10, 50*time.Millisecond // a response takes 100 ms
	})
	var b bytes.Buffer
	s.Text(&b, all, terminal.Screen{Width: 80})
	if !strings.Contains(b.String(), "no good response") {
		t.Error(&b)
	}
}

func TestText(t *testing.T) {
	s := play(t, func(w *Wish) { w.Outage, w.Through = "kill", []string{"direct", "retryproxy"} })
	var b bytes.Buffer
	s.Text(&b, View{Good: true}, terminal.Screen{Width: 80})
	for _, want := range []string{
		"1000 clients: a request each 10s on average, given up after 2s (seed 1)\n",
		"The server answers after 100ms with up to 30 at once, and 1.05 times as long for each 15 more\n",
		"After 15s it is killed, and its port refuses for 40s; then there are 1m0s more\n",
		"good/s before", "peak at the server", "\n  direct ", "\n  retryproxy ", "15s to 55s outage",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &b)
		}
	}
	calm := play(t, func(w *Wish) { w.Outage, w.Through = "none", []string{"direct"} })
	b.Reset()
	calm.Text(&b, View{Good: true}, terminal.Screen{Width: 80})
	if strings.Contains(b.String(), "good again") {
		t.Errorf("tells of an outage that is none\n%s", &b)
	}
}

// A long storm is drawn with fewer points, and rates are still per second.
func TestLongStormsAreDrawnMoreCoarsely(t *testing.T) {
	s := play(t, func(w *Wish) { w.Through, w.Clients, w.Length = []string{"retryproxy"}, 100, 2*time.Hour })
	line := s.Figure(View{Good: true}).Panels[0].Series[0]
	if len(line.Y) > mostPoints || len(line.Y) < mostPoints/2 {
		t.Errorf("%d points", len(line.Y))
	}
	if y := line.Y[len(line.Y)-1]; y < 5 || y > 15 {
		t.Errorf("%.1f good responses a second at the end, want about 10", y)
	}
	if x := line.X[len(line.X)-1]; x < 7100 || x > 7200 {
		t.Errorf("the last point is at %.0f s", x)
	}
}

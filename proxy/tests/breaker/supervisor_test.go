package breaker

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// draws is a source of randomness that remembers what the breaker drew. A strategy of slots draws
// one of at most ten numbers; everything else draws nanoseconds.
type draws struct {
	mu   sync.Mutex // guards all
	rand *rand.Rand
	all  []draw
}

type draw struct{ value, of int64 }

const mostSlots = 10

func (d *draws) Int64N(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.rand.Int64N(n)
	d.all = append(d.all, draw{v, n})
	return v
}

func (d *draws) Float64() float64     { panic("slots draw whole numbers") }
func (d *draws) NormFloat64() float64 { panic("slots draw whole numbers") }

func (d *draws) so() []draw {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// waits returns the wait before each probe: 0 if none was drawn.
func waits(all []draw) (waits []time.Duration, slots []draw) {
	wait := time.Duration(0)
	for _, d := range all {
		if d.of > mostSlots { // for a probe: how long it may hang
			waits = append(waits, wait)
			wait = 0
			continue
		}
		slots = append(slots, d)
		wait = 10 * time.Millisecond * time.Duration(int64(1)<<d.value-1)
	}
	return waits, slots
}

// arrival is a request at the upstream.
type arrival struct {
	number  int
	at      time.Time // when it arrived
	said    time.Time // just before its response
	failed  bool
	waiting int // in the queue, read after it arrived
}

// stage is an upstream that fails until the oldest request that is held comes while all others wait,
// and a proxy before it.
type stage struct {
	t       *testing.T
	server  *proxy.Server
	address string
	draws   *draws
	began   atomic.Int64

	mu       sync.Mutex // guards the rest
	oldest   int        // number of the oldest request that is held
	held     int        // that many wait when it recovers; -1: not yet
	good     bool
	release  chan struct{} // closed when good responses other than the first may come
	arrivals []arrival
}

type begins struct {
	settings.NoObserver
	n *atomic.Int64
}

func (b begins) RequestBegan() { b.n.Add(1) }

const heldRequests = 8

// newStage starts the proxy with the settings of the supervisor, and a queue of heldRequests.
func newStage(t *testing.T) *stage {
	s := &stage{t: t, draws: &draws{rand: rand.New(rand.NewPCG(7, 11))}, held: -1, release: make(chan struct{})}
	up := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(up.Close)
	read, problems := config.Load([]string{
		"RETRYPROXY_UPSTREAM=" + up.URL, "RETRYPROXY_LISTEN=127.0.0.1:0",
		"RETRYPROXY_BREAKER_AFTER=1",
		"RETRYPROXY_BREAKER_ON=5xx",
		"RETRYPROXY_BREAKER_BACKOFF=slots:base=10ms:slots=10",
		"RETRYPROXY_QUEUE_ORDER=oldest",
		fmt.Sprint("RETRYPROXY_QUEUE_MAX=", heldRequests),
		"RETRYPROXY_QUEUE_TIMEOUT=50m", "RETRYPROXY_REQUEST_TIMEOUT=1h", // longer than a test lasts
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c, err := config.Build(read)
	if err != nil {
		t.Fatal(err)
	}
	c.Default.Guard.Rand = s.draws
	c.Observe = func(string) func() proxy.Observer {
		return func() proxy.Observer { return begins{n: &s.began} }
	}
	if s.server, err = proxy.New(c); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.server.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	s.address = s.server.Addrs()[0].String()
	return s
}

func (s *stage) guard() breaker.GuardState { return s.server.Stats().Upstreams[0].Guard }

func (s *stage) serve(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	number, _ := strconv.Atoi(r.Header.Get("X-Number"))
	waiting := s.guard().Queued
	s.mu.Lock()
	first := false
	if !s.good && number == s.oldest && waiting == s.held {
		s.good, first = true, true
	}
	failed := !s.good
	s.arrivals = append(s.arrivals, arrival{number, at, time.Now(), failed, waiting})
	s.mu.Unlock()
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
	case !first:
		<-s.release
	}
}

// so returns the arrivals so far that failed, and the others.
func (s *stage) so() (failed, good []arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.arrivals {
		if a.failed {
			failed = append(failed, a)
		} else {
			good = append(good, a)
		}
	}
	return failed, good
}

// send sends the request with that number, and returns when the proxy has begun it. The channel gets
// the status and the reason of its response.
func (s *stage) send(number int) chan string {
	s.t.Helper()
	before := s.began.Load()
	answer := make(chan string, 1)
	go func() {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}}
		r, _ := http.NewRequest("GET", "http://"+s.address+"/", nil)
		r.Header.Set("X-Number", strconv.Itoa(number))
		res, err := client.Do(r)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close() //nolint:errcheck // only a test
		_, _ = io.Copy(io.Discard, res.Body)
		answer <- strconv.Itoa(res.StatusCode)
	}()
	s.await("the request has begun", func() bool { return s.began.Load() > before })
	return answer
}

func (s *stage) await(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(5 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not in 5 minutes", what)
		}
	}
}

// The supervisor: any failure pauses everything, later requests wait, the pause grows by the chosen
// backoff until a success resets it, what was held goes on in order, the queue is bounded and drops
// its oldest, and 500 counts.
func TestAnyFailurePausesEverything(t *testing.T) {
	const dropped = 3
	s := newStage(t)
	var answers []chan string
	for i := range dropped + heldRequests {
		answers = append(answers, s.send(i))
		s.await("the first failure pauses all", func() bool { return s.guard().Opened[breaker.OpenedByFailing] > 0 })
	}

	for i := range dropped {
		if got := <-answers[i]; got != "500" && got != "503" {
			t.Errorf("request %d, of the oldest in a full queue: %s", i, got)
		}
	}
	s.await("some probes fail", func() bool { failed, _ := s.so(); return len(failed) >= 6 })
	for i := dropped; i < len(answers); i++ {
		if len(answers[i]) > 0 {
			t.Errorf("request %d was held, and is over: %s", i, <-answers[i])
		}
	}

	s.mu.Lock()
	s.oldest, s.held = dropped, heldRequests-1
	s.mu.Unlock()
	s.await("the oldest succeeds", func() bool { _, good := s.so(); return len(good) >= 2 })
	s.await("the window is used", func() bool { _, good := s.so(); return s.guard().Queued <= heldRequests-4 && len(good) >= 4 })
	_, good := s.so()
	admitted := heldRequests - s.guard().Queued // read later, so it is not too small
	for _, a := range good {
		if a.number >= dropped+admitted {
			t.Errorf("request %d is at the upstream, of %d that were admitted from %d on: %+v", a.number, admitted, dropped, good)
		}
	}
	close(s.release)
	for i := dropped; i < len(answers); i++ {
		if got := <-answers[i]; got != "200" {
			t.Errorf("request %d, which was held: %s", i, got)
		}
	}
	s.judgePauses()

	// The next outage begins with the shortest pause.
	before := len(s.draws.so())
	failed, _ := s.so()
	s.mu.Lock()
	s.good, s.held = false, -1
	s.mu.Unlock()
	answer := s.send(100)
	s.await("another outage", func() bool { again, _ := s.so(); return len(again) >= len(failed)+3 })
	s.mu.Lock()
	s.oldest, s.held = 100, 0
	s.mu.Unlock()
	if got := <-answer; got != "200" {
		t.Errorf("after the second outage: %s", got)
	}
	if _, slots := waits(s.draws.so()[before:]); len(slots) == 0 || slots[0].of != 2 {
		t.Errorf("pauses after a success: %v, want the first of 2", slots)
	}
	if g := s.guard(); g.Resets != 2 {
		t.Errorf("%d resets after two outages", g.Resets)
	}
}

// judgePauses compares the times between the probes with the pauses that were drawn, and these with
// those of a randomised truncated binary exponential backoff.
func (s *stage) judgePauses() {
	s.t.Helper()
	s.mu.Lock()
	all := slices.Clone(s.arrivals)
	s.mu.Unlock()
	pauses, slots := waits(s.draws.so())
	strategy := backoff.Slots{Slot: 10 * time.Millisecond, Max: 32 * time.Second, Ceiling: 10}
	for i, d := range slots {
		step := i + i/(mostSlots-1) // the tenth pause draws nothing
		want := strategy.Range(backoff.Step{Retry: step}).Max
		if got := 10 * time.Millisecond * time.Duration(int64(1)<<(d.of-1)-1); got != want {
			s.t.Errorf("pause %d is up to %v, want %v", i, got, want)
		}
	}
	for i, pause := range pauses {
		if i+1 >= len(all) {
			s.t.Fatalf("%d probes, but %d requests arrived", len(pauses), len(all))
		}
		if got := all[i+1].at.Sub(all[i].said); got < pause {
			s.t.Errorf("probe %d came %v after the failure before it, want at least %v", i, got, pause)
		}
	}
}

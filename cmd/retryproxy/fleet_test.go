package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/internal/logtest"
)

// limited answers the first request with 429 and a pause, and all others with 200.
func limited(t *testing.T, pause string) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", pause)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// sharing runs a process of a fleet that shares pauses.
func sharing(t *testing.T, engine, upstream string, more ...string) *process {
	t.Helper()
	return startProxy(t, append(more, "UPSTREAM="+upstream, "POSITION=outbound", "RATE_LIMIT_PAUSE_KEY=route", "SHARED="+engine)...)
}

func TestWhatOneProcessMeetsPausesAnother(t *testing.T) {
	s := enginetest.Start(t)
	upstream, requests := limited(t, "30")
	a, b := sharing(t, s.URL, upstream, "REQUEST_TIMEOUT=10s"), sharing(t, s.URL, upstream, "REQUEST_TIMEOUT=10s")
	for _, p := range []*process{a, b} {
		p.await("the engine", func() bool { return p.metric("retryproxy_shared_processes") == "2" })
	}
	if response, _ := a.get(0, "/"); response.StatusCode != 429 {
		t.Fatalf("got %d", response.StatusCode)
	}
	b.await("the word", func() bool { return b.metric(`retryproxy_shared_rate_limit_pauses_total{way="learnt"}`) == "1" })
	response, _ := b.get(0, "/")
	if response.StatusCode != 429 || response.Header.Get("X-Retryproxy-Reason") != "rate_limit_pause" || response.Header.Get("Retry-After") == "" || requests.Load() != 1 {
		t.Errorf("%d, %v, after %d requests at the upstream", response.StatusCode, response.Header, requests.Load())
	}
}

// No request fails or waits if the engine hangs or is missing.
func TestRequestsDoNotWaitForTheEngine(t *testing.T) {
	s := enginetest.Start(t)
	upstream := failing(t, "fine", 0)
	p := sharing(t, s.URL, upstream.URL)
	p.await("the engine", func() bool { return p.metric("retryproxy_shared_up") == "1" })
	s.Pause()
	defer s.Continue()
	for n := range 100 {
		began := time.Now()
		if response, body := p.get(0, "/"); response.StatusCode != 200 || body != "fine" {
			t.Fatalf("%d %q", response.StatusCode, body)
		}
		// Only the first can be held up: after one wait for the engine it counts as lost.
		if d := time.Since(began); n == 0 && d > 400*time.Millisecond {
			t.Errorf("the first request took %v, as long as a wait for the engine", d)
		}
	}
	p.await("loss", func() bool { return p.metric("retryproxy_shared_up") == "0" })
	if response, _ := p.get(0, "/"); response.StatusCode != 200 || strings.Count(p.log.String(), "does not respond") != 1 {
		t.Errorf("%d\n%s", response.StatusCode, p.log)
	}
}

// Two processes and a rate limit for each value of a header: each value has its own limit, shared
// by both, and the engine stores only a hash with an expiry.
func TestEachKeyHasItsRateLimitInAllProcesses(t *testing.T) {
	s := enginetest.Start(t)
	var mu sync.Mutex
	sent := map[string][]time.Time{}
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("X-Api-Key")
		sent[key] = append(sent[key], time.Now())
	}))
	t.Cleanup(up.Close)
	var all []*process
	for range 2 {
		all = append(all, startProxy(t, "UPSTREAM="+up.URL, "POSITION=outbound", "RATE_LIMIT=20/s", "RATE_LIMIT_KEY=header:X-Api-Key", "RATE_LIMIT_WAIT=5s", "SHARED="+s.URL))
	}
	for _, p := range all {
		p.await("the others", func() bool { return p.metric("retryproxy_shared_processes") == "2" })
	}
	keys := []string{"secret-of-a", "secret-of-b", ""}
	began := time.Now()
	var clients sync.WaitGroup
	for _, p := range all {
		for _, key := range keys {
			for range 3 {
				clients.Go(func() {
					for time.Since(began) < 2500*time.Millisecond {
						callWithKey(t, p, key)
					}
				})
			}
		}
	}
	time.Sleep(time.Second)
	names := s.Do("KEYS", "*").([]any)
	rateLimits := 0
	for _, name := range names {
		if strings.Contains(name.(string), ":ratelimit:") {
			rateLimits++
		}
		if left := s.Do("PTTL", name).(int64); left < 0 && left != -2 || strings.Contains(fmt.Sprint(name, s.Do("DUMP", name)), "secret") {
			t.Errorf("%v ends in %d ms", name, left)
		}
	}
	if rateLimits != len(keys) {
		t.Errorf("%d rate limits among %v", rateLimits, names)
	}
	t.Logf("%d bytes each", s.Do("MEMORY", "USAGE", names[slices.IndexFunc(names, func(n any) bool { return strings.Contains(n.(string), ":ratelimit:") })]))
	clients.Wait()
	mu.Lock()
	defer mu.Unlock()
	sum := 0
	for _, key := range keys {
		at := sent[key]
		sum += len(at)
		// Every request was sent when it was due, except for a lease of up to 100 ms in advance and
		// the own share of a process that waits for a response.
		if most := int(20*(at[len(at)-1].Sub(at[0])+400*time.Millisecond).Seconds()) + 2; len(at) > most {
			t.Errorf("key %q: %d sent in %v, want at most %d", key, len(at), at[len(at)-1].Sub(at[0]), most)
		}
	}
	if sum < 75 { // of 150; a single rate limit allows 50
		t.Errorf("%d sent with three keys", sum)
	}
	for _, p := range all {
		if n := p.metric(`retryproxy_rate_limit_keys{rate_limit="20/s",upstream="` + up.URL + `"}`); n != "2" {
			t.Errorf("%s keys", n)
		}
	}
}

// A cluster of three masters: the slot of a rate limit is moved, then its master is killed and
// restarted, under load. No request fails, none exceeds the rate limit, and all share again in the
// end.
func TestACluster(t *testing.T) {
	cluster := enginetest.StartCluster(t, 3)
	var sent atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent.Add(1) }))
	t.Cleanup(up.Close)
	var all []*process
	for range 2 {
		all = append(all, startProxy(t, "UPSTREAM="+up.URL, "POSITION=outbound", "RATE_LIMIT=100/s", "RATE_LIMIT_WAIT=20s", "SHARED="+enginetest.ClusterURL(cluster)))
	}
	together := func(p *process) bool {
		return p.metric("retryproxy_shared_up") == "1" && p.metric("retryproxy_shared_processes") == "2"
	}
	for _, p := range all {
		p.await("the other", func() bool { return together(p) })
	}
	began := time.Now()
	var clients sync.WaitGroup
	var over atomic.Bool
	for i := range 8 {
		clients.Go(func() {
			for !over.Load() {
				callWithKey(t, all[i%2], "")
			}
		})
	}
	defer clients.Wait()
	defer over.Store(true)
	leased := func(p *process) string {
		return p.metric(`retryproxy_rate_limit_slots_total{from="leased",rate_limit="100/s",upstream="` + up.URL + `"}`)
	}
	leases := func(why string) {
		t.Helper()
		for _, p := range all {
			had := leased(p)
			p.await("leases "+why, func() bool { return together(p) && leased(p) != had })
		}
	}
	leases("at first")
	holder, slot := holderOfRateLimit(t, cluster)
	to := (holder + 1) % 3
	cluster[holder].MoveSlot(slot, cluster[to], cluster)
	leases("of a slot that moved")
	if now, _ := holderOfRateLimit(t, cluster); now != to {
		t.Errorf("the rate limit is at %d, moved from %d to %d", now, holder, to)
	}
	cluster[to].Kill()
	before := sent.Load()
	for _, p := range all {
		p.await("loss", func() bool { return p.metric("retryproxy_shared_lost_total") != "0" })
	}
	time.Sleep(time.Second)
	if n := sent.Load() - before; n < 20 {
		t.Errorf("%d sent without the master", n)
	}
	cluster[to].Restart()
	enginetest.AwaitCluster(t, cluster)
	leases("when it is back")
	over.Store(true)
	clients.Wait()
	took := time.Since(began)
	if most := int32(100*(took+time.Second).Seconds()) + 10; sent.Load() > most {
		t.Errorf("%d sent in %v, want at most %d", sent.Load(), took, most)
	}
}

// holderOfRateLimit returns which master of the cluster has the rate limit, and in which slot.
func holderOfRateLimit(t *testing.T, cluster []*enginetest.Server) (holder int, slot int64) {
	t.Helper()
	for i, s := range cluster {
		for _, name := range s.Do("KEYS", "*:ratelimit:*").([]any) {
			return i, s.Do("CLUSTER", "KEYSLOT", name).(int64)
		}
	}
	t.Fatal("no rate limit anywhere")
	return 0, 0
}

func callWithKey(t *testing.T, p *process, key string) {
	request, err := http.NewRequest("GET", "http://"+p.listen[0]+"/", nil)
	if err != nil {
		t.Error(err)
		return
	}
	if key != "" {
		request.Header.Set("X-Api-Key", key)
	}
	response, err := p.client.Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	if response.StatusCode != 200 {
		t.Errorf("key %q: %s", key, response.Status)
	}
}

func TestAnEngineWithoutItsFiles(t *testing.T) {
	for _, command := range []string{"check", "serve"} {
		o := &outside{args: []string{command}, env: []string{"RETRYPROXY_UPSTREAM=http://api.example", "RETRYPROXY_SHARED=redis://cache?password_file=/none"}, stdout: &logtest.Buffer{}, stderr: &logtest.Buffer{}}
		code := run(t.Context(), o)
		if said := o.stdout.(*logtest.Buffer).String() + o.stderr.(*logtest.Buffer).String(); code != exitUsage || !strings.Contains(said, "shared state on redis://cache: the password: open /none") {
			t.Errorf("%s: exit code %d, %s", command, code, said)
		}
	}
}

package everyrule

import (
	"flag"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/route"
)

var (
	replays    = flag.Int("replays", 2400, "requests that TestReplayIsExact sends")
	replaySeed = flag.Uint64("replay-seed", 1, "what TestReplayIsExact draws from")
)

// Whatever the body, its framing and its trailers are, and wherever the upstream fails: every
// attempt carries the client's bytes and trailers, or is visibly cut off. A body over a cap is
// never retried in part. The test covers both protocols on either side, with enough memory and
// with little, over real sockets.
func TestReplayIsExact(t *testing.T) {
	each := (*replays + 7) / 8
	for i, caps := range []replayCaps{{1 << 20, 64 << 20}, {40 << 10, 200 << 10}} {
		for j, sides := range [][2]proto{{one, one}, {one, two}, {two, one}, {two, two}} {
			t.Run(fmt.Sprintf("%s to %s, %d bytes of a body and %d of all", sides[0], sides[1], caps.request, caps.total), func(t *testing.T) {
				x := newReplayTrial(t, *replaySeed+uint64(4*i+j)<<32, caps, sides[0], sides[1])
				x.send(each)
				x.judge(each)
			})
		}
	}
}

type replayCaps struct{ request, total int64 }

// replayTrial is many requests through one proxy, each of which follows from the
// seed and its number.
type replayTrial struct {
	*run
	seed   uint64
	speaks proto // of clients
	caps   replayCaps

	next   atomic.Int64
	tally  replayTally
	mu     sync.Mutex // guards what follows
	states map[int]*replayState
	broken int
}

// replayTally is what the upstream saw.
type replayTally struct {
	attempts, repeats, whole, wholeRepeats, cut, bytes atomic.Int64
	withTrailers, refusedClients                       atomic.Int64
}

// replayState is what the upstream saw of one request.
type replayState struct {
	attempts int
	reached  bool // an attempt was not refused unprocessed
	took     bool // ... and of one it took a byte of the body
}

const hangs = "/hang/"

func newReplayTrial(t *testing.T, seed uint64, caps replayCaps, speaks, up proto) *replayTrial {
	x := &replayTrial{seed: seed, speaks: speaks, caps: caps, states: map[int]*replayState{}}
	x.run = &run{T: t, rule: rule{acts: []act{x.play}}, release: make(chan struct{})}
	x.up = startScripted(x.run, up)
	x.p = proxytest.StartTo(t, x.up.url, func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		d := &c.Default
		d.Policy.MaxRetries, d.RetryBufferBytes, c.RetryBufferTotalBytes = 6, caps.request, caps.total
		d.AttemptTimeout, d.RequestTimeout, d.BodyIdleTimeout, c.DrainTimeout = peers.Patience, 2*peers.Patience, peers.Patience, peers.Patience
		hanging := *d
		hanging.Name, hanging.AttemptTimeout, hanging.RequestTimeout, hanging.BodyIdleTimeout = "hang", 50*time.Millisecond, time.Second, time.Second
		hanging.Match = route.Match{Path: hangs + "*"}
		c.Routes = []proxy.Route{hanging}
	})
	return x
}

// send has a few clients send n requests.
func (x *replayTrial) send(n int) {
	var all sync.WaitGroup
	for range 8 {
		c := newProtoClient(x.run, x.speaks)
		all.Go(func() {
			for id := int(x.next.Add(1)); id <= n && !x.Failed(); id = int(x.next.Add(1)) {
				got := <-c.begin(x.plan(id).call())
				if got.err != nil {
					x.Logf("request %d: %v", id, got.err)
					x.tally.refusedClients.Add(1)
				}
			}
		})
	}
	all.Wait()
}

// breaks tells of a promise that was broken.
func (x *replayTrial) breaks(p *replayPlan, n int, format string, a ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken++; x.broken <= 5 {
		x.Errorf("seed %d, request %d (%s, %d bytes, length announced %v, trailers %v), attempt %d: %s", x.seed, p.id, p.method, len(p.body), !p.unknown, p.trailers, n, fmt.Sprintf(format, a...))
	}
}

// judge holds what was counted, so that a trial in which nothing was repeated
// does not pass for one in which all was well.
func (x *replayTrial) judge(n int) {
	if x.Failed() {
		return
	}
	a := &x.tally
	peers.Soon(x, "all outcomes", func() bool { defer x.p.Seen.Lock()(); return len(x.p.Seen.Outcomes) == x.p.Seen.Began })
	if lost := int64(n - x.p.Seen.Requests()); lost > a.refusedClients.Load() { // a client may be told to use another connection, which Go's cannot with a body
		x.Errorf("%d requests did not reach the proxy, and their clients know nothing of it", lost)
	}
	outcomes := map[policy.Outcome]int{}
	unlock := x.p.Seen.Lock()
	for _, o := range x.p.Seen.Outcomes {
		outcomes[o]++
	}
	unlock()
	x.Logf("%d requests, %d attempts, %d of them retries; %d came whole, %d of these retries, %d cut off; %d with trailers; %d bytes; %d clients without a whole response; %v",
		n, a.attempts.Load(), a.repeats.Load(), a.whole.Load(), a.wholeRepeats.Load(), a.cut.Load(), a.withTrailers.Load(), a.bytes.Load(), a.refusedClients.Load(), outcomes)
	tooLarge, full := outcomes[policy.GaveUp(policy.ReasonBodyTooLarge)], outcomes[policy.GaveUp(policy.ReasonRetryBufferFull)]
	if little := x.caps.total < 1<<20; n >= 250 && (a.wholeRepeats.Load() == 0 || a.cut.Load() == 0 || a.withTrailers.Load() == 0 || (tooLarge > 0) != little || full > 0 && !little) {
		x.Error("something never happened, or a cap was hit that is not there")
	}
}

// trailerOf is nil for a request without.
func trailerOf(p *replayPlan) http.Header {
	if p.trailers == "" {
		return nil
	}
	return http.Header{"X-Sum": {p.trailers}}
}

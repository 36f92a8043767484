package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// side is one of the two paths of the traffic.
type side uint8

const (
	direct  side = iota // to the upstream, without retries
	proxied             // through retryproxy
	numSides
)

func (s side) String() string { return [...]string{"without retries", "with retryproxy"}[s] }

// Results of a request as the client sees them, besides failing statuses.
const (
	success = "success" // 200 and the whole body
	reset   = "reset"   // the connection ended before the whole response
	other   = "other"   // any other status or error
)

// failures are the columns of the report after success.
var failures = []string{"429", "502", "503", reset, other}

// tally counts what the clients of one side saw. It is safe for concurrent use.
type tally struct {
	mu        sync.Mutex // guards the fields below
	all       int
	counts    map[string]int
	latencies [10_000]time.Duration // a ring of the most recent ones
}

func (t *tally) add(what string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[what]++
	t.latencies[t.all%len(t.latencies)] = took
	t.all++
}

func (t *tally) count(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[what]
}

// requests returns the number of completed requests.
func (t *tally) requests() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// success returns the share of requests that succeeded, 0 without any.
func (t *tally) success() float64 { return float64(t.count(success)) / float64(max(1, t.requests())) }

// quantile returns the latency that a share q of the recent requests did not exceed.
func (t *tally) quantile(q float64) time.Duration {
	t.mu.Lock()
	last := slices.Clone(t.latencies[:min(t.all, len(t.latencies))])
	t.mu.Unlock()
	if len(last) == 0 {
		return 0
	}
	slices.Sort(last)
	d := last[int(q*float64(len(last)-1))]
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// Limits of the traffic.
const (
	maxInFlight    = 512              // requests of both sides together; further ones are delayed
	clientPatience = 40 * time.Second // longer than the proxy's request timeout
	lastAnswers    = 5 * time.Second  // to wait for the last responses; longer than most waits for a Retry-After of 1 s
	maxUpload      = 32 << 10         // bytes
)

// call is one request of the traffic.
type call struct {
	number uint64
	method string
	path   string
	body   []byte
}

// traffic sends the same requests at the same time to both sides.
type traffic struct {
	seed   uint64
	rate   int // requests per second to each side
	base   [numSides]string
	client *http.Client

	bytes []byte // the source of bodies

	tally    [numSides]tally
	inFlight atomic.Int64
	running  sync.WaitGroup
}

// newTraffic keeps no connections alive. net/http's client retries requests by itself when a kept
// connection is reset, but the side without retries must not retry.
func newTraffic(seed uint64, rate int, upstream, proxy string) *traffic {
	t := &traffic{
		seed:  seed,
		rate:  rate,
		base:  [numSides]string{direct: upstream, proxied: proxy},
		bytes: make([]byte, maxUpload),
		client: &http.Client{
			Timeout:   clientPatience,
			Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		},
	}
	r := draw(seed, bodyStream, 0)
	for i := range t.bytes {
		t.bytes[i] = byte(r.Uint32())
	}
	return t
}

// run sends requests until until is done, and calls line every second. Then it waits a while for the
// last responses. When ctx ends, it returns at once. Requests without a response are not counted.
func (t *traffic) run(ctx, until context.Context, line func()) {
	sending, cancel := context.WithCancel(ctx)
	defer t.running.Wait()
	defer cancel()
	pace, second := time.NewTicker(time.Second/time.Duration(t.rate)), time.NewTicker(time.Second)
	defer pace.Stop()
	defer second.Stop()
	for number := uint64(1); until.Err() == nil; {
		select {
		case <-until.Done():
		case <-second.C:
			line()
		case <-pace.C:
			if t.inFlight.Load() > maxInFlight-int64(numSides) {
				continue
			}
			c := t.call(number)
			t.send(sending, direct, c)
			t.send(sending, proxied, c)
			number++
		}
	}
	finished := make(chan struct{})
	go func() {
		t.running.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(lastAnswers):
	}
}

// call returns request number n, always the same one for a seed.
func (t *traffic) call(n uint64) call {
	r := draw(t.seed, callStream, n)
	switch sort := r.IntN(10); {
	case sort < 6:
		return call{n, "GET", fmt.Sprintf("/search/%d", r.IntN(1000)), nil}
	case sort < 8:
		return call{n, "PUT", fmt.Sprintf("/upload/%d", r.IntN(1000)), t.bytes[:1+r.IntN(maxUpload)]}
	default:
		return call{n, "POST", "/checkout", t.bytes[:200]}
	}
}

// send sends c in the background.
func (t *traffic) send(ctx context.Context, s side, c call) {
	t.inFlight.Add(1)
	t.running.Go(func() {
		defer t.inFlight.Add(-1)
		began := time.Now()
		k := t.ask(ctx, s, c)
		if ctx.Err() == nil {
			t.tally[s].add(k, time.Since(began))
		}
	})
}

// ask sends c and returns the result.
func (t *traffic) ask(ctx context.Context, s side, c call) string {
	r, err := http.NewRequestWithContext(ctx, c.method, t.base[s]+c.path, bytes.NewReader(c.body))
	if err != nil {
		return other
	}
	r.Header.Set(requestField, strconv.FormatUint(c.number, 10))
	resp, err := t.client.Do(r)
	if err != nil {
		return seenOf(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return seenOf(err)
	}
	if resp.StatusCode == http.StatusOK {
		return success
	}
	if status := strconv.Itoa(resp.StatusCode); slices.Contains(failures, status) {
		return status
	}
	return other
}

func seenOf(err error) string {
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return reset
		}
	}
	return other
}

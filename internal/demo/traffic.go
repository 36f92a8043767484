package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
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
	success = "success" // 200 and the right body
	reset   = "reset"   // the connection ended before the whole response
	other   = "other"   // any other status or error, or a wrong body
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
	maxUnderWay    = 512              // requests in flight, both sides together; further ones are delayed
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

	tally   [numSides]tally
	slots   chan struct{}
	running sync.WaitGroup
}

// newTraffic keeps no connections alive. net/http's client retries requests by itself when a kept
// connection is reset, but the side without retries must not retry.
func newTraffic(seed uint64, rate int, upstream, proxy string) *traffic {
	t := &traffic{
		seed:  seed,
		rate:  rate,
		base:  [numSides]string{direct: upstream, proxied: proxy},
		bytes: make([]byte, maxUpload),
		slots: make(chan struct{}, maxUnderWay),
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

// show runs the traffic and calls line every second.
func (t *traffic) show(ctx, until context.Context, line func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.run(ctx, until)
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			line()
		case <-done:
			return
		}
	}
}

// run sends requests until until is done, then waits a while for the last responses. When ctx ends,
// it returns at once. Requests without a response are not counted.
func (t *traffic) run(ctx, until context.Context) {
	sending, cancel := context.WithCancel(ctx)
	defer t.running.Wait()
	defer cancel()
	pace := time.NewTicker(time.Second / time.Duration(t.rate))
	defer pace.Stop()
	for number := uint64(1); t.room(until); number++ {
		c := t.call(number)
		t.send(sending, direct, c)
		t.send(sending, proxied, c)
		select {
		case <-pace.C:
		case <-until.Done():
		}
	}
	select {
	case <-t.finished():
	case <-time.After(lastAnswers):
	}
}

// finished is closed when no request is in flight. No request may begin after the call.
func (t *traffic) finished() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		t.running.Wait()
		close(done)
	}()
	return done
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

// room waits until a request may be sent to each side; false if until is done.
func (t *traffic) room(until context.Context) bool {
	for range numSides {
		select {
		case t.slots <- struct{}{}:
		case <-until.Done():
		}
	}
	return until.Err() == nil
}

// send sends c in the background. Call room before.
func (t *traffic) send(ctx context.Context, s side, c call) {
	t.running.Go(func() {
		began := time.Now()
		k := t.ask(ctx, s, c)
		if ctx.Err() == nil {
			t.tally[s].add(k, time.Since(began))
		}
		<-t.slots
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return seenOf(err)
	}
	if resp.StatusCode == http.StatusOK && c.isAnsweredBy(body) {
		return success
	}
	if status := strconv.Itoa(resp.StatusCode); slices.Contains(failures, status) {
		return status
	}
	return other
}

// isAnsweredBy reports whether the body shows that the upstream received the whole request.
func (c *call) isAnsweredBy(body []byte) bool {
	var a answer
	return json.Unmarshal(body, &a) == nil && a.Path == c.path && a.Bytes == len(c.body) && a.Sum == crc32.ChecksumIEEE(c.body)
}

func seenOf(err error) string {
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return reset
		}
	}
	return other
}

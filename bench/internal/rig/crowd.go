package rig

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What a Crowd counts for each request.
const (
	Good = "good"  // 200 in time
	Late = "late"  // no response in time
	Bad  = "bad: " // followed by a status or a kind of error

	// With Crowd.Came, when it came: a try that began in an outage and ends after it belongs to the outage.
	CameGood = "came, good"
	CameBad  = "came, bad"
)

// Crowd is a number of clients. Each has one request at a time. After a good response it pauses for an
// exponentially distributed time.
type Crowd struct {
	N        int
	Every    time.Duration // mean of the pause; 0 means none
	Patience time.Duration // how long a client waits for a response
	Seed     uint64
	Came     bool                    // tries are also counted when they came
	Path     func(client int) string // what a client requests; called for each request
	// Again returns the pause before a client sends its request again, after failed+1 failures in a row.
	// If it is nil, the client goes on as after a good response.
	Again func(r *rand.Rand, failed int) time.Duration
}

// Run starts the clients, shared out evenly among addrs. They end with ctx.
func (c *Crowd) Run(ctx context.Context, addrs []string, t *Timeline) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range c.N {
		r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		client := Client(i)
		all.Go(func() {
			defer client.CloseIdleConnections()
			c.run(ctx, client, func() string { return "http://" + addrs[i%len(addrs)] + c.Path(i) }, r, t)
		})
	}
	return &all
}

// Client returns the client of a number, which has its own connections.
func Client(number int) *http.Client {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: source(number)}}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableCompression: true, MaxIdleConnsPerHost: 100}}
}

// source returns the address of a client. The clients are spread over the loopback network, so that no
// address runs out of ports.
func source(client int) net.IP {
	client /= 20
	return net.IPv4(127, 0, byte(1+client/200), byte(1+client%200))
}

func (c *Crowd) run(ctx context.Context, client *http.Client, path func() string, r *rand.Rand, t *Timeline) {
	for Sleep(ctx, time.Duration(r.ExpFloat64()*float64(c.Every))) {
		url := path()
		for failed := 0; !c.try(ctx, client, url, t) && c.Again != nil; failed++ {
			if !Sleep(ctx, c.Again(r, failed)) {
				return
			}
		}
	}
}

// try is Try, and counts the result when the try came.
func (c *Crowd) try(ctx context.Context, client *http.Client, url string, t *Timeline) bool {
	came := t.Since()
	good := c.Try(ctx, client, url, t)
	switch {
	case c.Came && good:
		t.CountAt(came, CameGood, 1)
	case c.Came && ctx.Err() == nil:
		t.CountAt(came, CameBad, 1)
	}
	return good
}

// Try sends one request, counts its result, and reports whether the status was 200. If an idle
// connection was closed, it uses another one, as every client library does.
func (c *Crowd) Try(ctx context.Context, client *http.Client, url string, t *Timeline) bool {
	began := time.Now()
	status, err := c.get(ctx, client, url)
	switch {
	case ctx.Err() != nil && err != nil: // the end of the run
		return false
	case err != nil && time.Since(began) >= c.Patience:
		t.Count(Late, 1)
	case err != nil:
		t.Count(Bad+KindOf(err), 1)
	default:
		t.Took(time.Since(began))
		if status == http.StatusOK {
			t.Count(Good, 1)
			return true
		}
		t.Count(Bad+strconv.Itoa(status), 1)
	}
	return false
}

func (c *Crowd) get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// Tick is the resolution of a Timeline.
const Tick = 100 * time.Millisecond

// Counts are numbers by name. They add up, except that for a name that ends in " at once" the largest
// number is kept.
type Counts map[string]int

// Add adds o to c.
func (c Counts) Add(o Counts) {
	for name, n := range o {
		if strings.HasSuffix(name, " at once") {
			c[name] = max(c[name], n)
		} else {
			c[name] += n
		}
	}
}

// Kinds returns the sum of the counts whose name has the prefix begin.
func (c Counts) Kinds(begin string) (sum int) {
	for name, n := range c {
		if strings.HasPrefix(name, begin) {
			sum += n
		}
	}
	return sum
}

// Timeline counts what happens in each Tick. It is safe for concurrent use.
type Timeline struct {
	made  time.Time
	began atomic.Int64 // nanoseconds after made

	mu    sync.Mutex // guards what follows
	ticks []Counts
	took  []time.Duration
}

// NewTimeline returns a Timeline that begins now.
func NewTimeline() *Timeline { return &Timeline{made: time.Now()} }

// Begin restarts the timeline. What was counted before stays in its first tick.
func (t *Timeline) Begin() { t.began.Store(int64(time.Since(t.made))) }

// Since returns the time since the begin.
func (t *Timeline) Since() time.Duration {
	return max(0, time.Since(t.made)-time.Duration(t.began.Load()))
}

// Until waits for a time since the begin. It reports whether it came before ctx ended.
func (t *Timeline) Until(ctx context.Context, at time.Duration) bool { return Sleep(ctx, at-t.Since()) }

// Count adds n to a name in the current tick.
func (t *Timeline) Count(name string, n int) { t.CountAt(t.Since(), name, n) }

// CountAt adds n to a name in the tick of a time since the begin.
func (t *Timeline) CountAt(at time.Duration, name string, n int) {
	i := int(at / Tick)
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.ticks) <= i {
		t.ticks = append(t.ticks, Counts{})
	}
	t.ticks[i].Add(Counts{name: n})
}

// Took records how long a response took.
func (t *Timeline) Took(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, d)
}

// Within returns the time within which this share of the responses arrived; 0 if there were none.
func (t *Timeline) Within(share float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.took) == 0 {
		return 0
	}
	all := slices.Sorted(slices.Values(t.took))
	return all[min(int(share*float64(len(all))), len(all)-1)]
}

// Sum returns the sum of the ticks from from (inclusive) to to (exclusive).
func (t *Timeline) Sum(from, to time.Duration) Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Sum(t.ticks, from, to)
}

// Total returns the sum of all ticks.
func (t *Timeline) Total() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Sum(t.ticks, 0, time.Duration(len(t.ticks))*Tick)
}

// Ticks returns a copy of the ticks of the first length.
func (t *Timeline) Ticks(length time.Duration) []Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Counts, length/Tick)
	for i := range all {
		if all[i] = (Counts{}); i < len(t.ticks) {
			all[i] = maps.Clone(t.ticks[i])
		}
	}
	return all
}

// Sum returns the sum of ticks from from (inclusive) to to (exclusive).
func Sum(ticks []Counts, from, to time.Duration) Counts {
	sum := Counts{}
	first := max(0, min(int(from/Tick), len(ticks)))
	for _, c := range ticks[first:max(first, min(int(to/Tick), len(ticks)))] {
		sum.Add(c)
	}
	return sum
}

// Seconds returns the sums of ticks by whole seconds.
func Seconds(ticks []Counts) (all []Counts) {
	const perSecond = int(time.Second / Tick)
	for i := 0; i+perSecond <= len(ticks); i += perSecond {
		all = append(all, Sum(ticks, time.Duration(i)*Tick, time.Duration(i+perSecond)*Tick))
	}
	return all
}

package breaker

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// supervised pauses everything after a failure, by the slots of the supervisor.
func supervised(c *proxy.Config) {
	c.Default.Guard = breaker.Options{
		After: 1, On: breaker.NewFailures([]breaker.EndKind{breaker.Refused, breaker.DialFailed, breaker.Reset, breaker.TimedOut}, 500, 502, 503, 504),
		Backoff: backoff.Slots{Slot: 10 * time.Millisecond, Max: 32 * time.Second, Ceiling: 10}, Rand: rand.New(rand.NewPCG(3, 5)),
	}
	c.Default.QueueOldest = true
	c.Default.QueueTimeout, c.Default.RequestTimeout = 1000*time.Hour, 0
}

// numbered is an upstream that records which request came when, and fails while fails returns true
// for the number of requests before. A good response takes a second.
type numbered struct {
	mu    sync.Mutex
	fails func(n int) bool
	seen  []numberedRequest
}

type numberedRequest struct {
	number int
	at     time.Time
}

func (u *numbered) handle(c *peers.Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		number, _ := strconv.Atoi(peers.FieldOf(headers, "X-Number"))
		u.mu.Lock()
		fails := u.fails(len(u.seen))
		u.seen = append(u.seen, numberedRequest{number, time.Now()})
		u.mu.Unlock()
		if fails {
			c.Say("%s", peers.RawResponse(500))
		} else if c.Stays(time.Second) {
			c.Say("%s", peers.OK200)
		}
	}
}

// The times between probes have the distribution of a randomised truncated binary exponential
// backoff, exactly, and begin anew at the ceiling and after a success.
func TestThePausesAreThoseOfTheChosenBackoff(t *testing.T) {
	const rounds = 300 // of ten pauses
	up := &numbered{fails: func(n int) bool { return n != 10*rounds && n < 10*rounds+4 }}
	proxytest.InMemory(t, up.handle, supervised, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		m.Client().Send(peers.Get("/")).Want(200, "ok")
	})
	counts := [11][11]float64{} // by slot and exponent
	pauses := func(from, to int) {
		for i := from; i < to; i++ {
			slot, k := (i-from)%10+1, 0
			if slot == 10 {
				slot = 0 // the ceiling: begin anew at once
			}
			pause := up.seen[i+1].at.Sub(up.seen[i].at)
			for k < slot && pause != pauseOf(k) {
				k++
			}
			if pause != pauseOf(k) {
				t.Fatalf("pause %d is %v, want one of slot %d", i, pause, slot)
			}
			counts[slot][k]++
		}
	}
	pauses(0, 10*rounds)
	for slot := 1; slot <= 9; slot++ {
		for k := range slot + 1 {
			want := float64(rounds) / float64(slot+1)
			if got := counts[slot][k]; math.Abs(got-want) > 5*math.Sqrt(want) {
				t.Errorf("slot %d: %v pauses of 2^%d - 1, want about %v", slot, got, k, want)
			}
		}
	}
	pauses(10*rounds+1, 10*rounds+4)
}

func pauseOf(exponent int) time.Duration {
	return max(time.Millisecond, (1<<exponent-1)*10*time.Millisecond) // at least as long as the one that failed needs to come back
}

// What is held goes on in the order in which it came, however often the first of it fails. When the
// queue is full, the oldest goes.
func TestWhatIsHeldGoesOnInOrder(t *testing.T) {
	const probes, held = 40, 6
	up := &numbered{fails: func(n int) bool { return n < probes }}
	proxytest.InMemory(t, up.handle, func(c *proxy.Config) {
		supervised(c)
		c.Default.QueueMax = held
	}, func(t *testing.T, m *proxytest.Memory) {
		var ends []func() (*http.Response, time.Time)
		for i := range held + 2 {
			ends = append(ends, m.Client().Send(fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nX-Number: %d\r\n\r\n", i)).Later())
			synctest.Wait()
			time.Sleep(time.Microsecond)
		}
		for i, end := range ends {
			want := 200
			if i < 2 {
				want = 500
				if up.count(i) == 0 {
					want = 503
				}
			}
			if res, _ := end(); res.StatusCode != want {
				t.Errorf("request %d: %d, want %d", i, res.StatusCode, want)
			}
		}
	})
	// Requests that are sent at the same moment may arrive in any order.
	slices.SortStableFunc(up.seen, func(a, b numberedRequest) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.number, b.number))
	})
	last := 0
	for _, r := range up.seen {
		if r.number < last {
			t.Fatalf("request %d after %d: %v", r.number, last, up.seen)
		}
		last = r.number
	}
}

func (u *numbered) count(number int) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.seen {
		if r.number == number {
			n++
		}
	}
	return n
}

package overload

import (
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/sim"
)

// need returns how long a request takes while c of them are in progress.
func need(s *sim.Server, c int) time.Duration {
	t := float64(s.Base)
	if c > s.Free {
		t *= math.Pow(s.Factor, float64(c-s.Free)/s.Step)
	}
	return time.Duration(min(t, float64(math.MaxInt64/2)))
}

// work is the requests in progress. One goroutine checks those that are due, so that twenty thousand requests
// cost little more than a few.
type work struct {
	o Model

	mu     sync.Mutex // guards what follows
	jobs   []*job     // in the order in which they arrived
	most   int        // at once, since the last load
	total  int
	cached map[string]bool // paths that are answered from the cache
	forgot bool            // the cache has no other paths

	status int           // of responses; 0: 200
	delay  time.Duration // added to each response
	slower float64       // 0: as the model says
}

// change applies an order.
func (w *work) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// job is a request.
type job struct {
	path        string
	began, look time.Time     // when it got a worker, and when it is checked next
	extra       time.Duration // beside what the model says
	hit         bool          // answered from the cache
	done        chan int      // the status
}

// begin adds a request.
func (w *work) begin(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.jobs = append(w.jobs, j)
	w.most = max(w.most, len(w.jobs))
	if w.total++; w.total <= w.o.Cold {
		j.extra = w.o.ColdFor
	}
	j.extra += w.delay
	j.hit = w.o.CacheFor > 0 && (!w.forgot || w.cached[j.path])
	if w.o.Workers == 0 || len(w.jobs) <= w.o.Workers {
		w.start(j, now)
	}
}

// start gives a job a worker.
func (w *work) start(j *job, now time.Time) {
	j.began = now
	w.wait(j, len(w.jobs), now)
}

// needs returns how long a job takes while atOnce of them are in progress.
func (w *work) needs(j *job, atOnce int) time.Duration {
	switch {
	case j.hit:
		return w.o.CacheFor
	case w.slower > 0:
		return time.Duration(w.slower*float64(need(&w.o.Server, atOnce))) + j.extra
	}
	return need(&w.o.Server, atOnce) + j.extra
}

// wait schedules the next check of the job: after o.Look, or when it should be done if that is sooner.
func (w *work) wait(j *job, atOnce int, now time.Time) {
	j.look = now.Add(min(w.needs(j, atOnce)-now.Sub(j.began), w.o.Look))
}

// turn checks all jobs that are due.
func (w *work) turn(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	atOnce, running, kept := len(w.jobs), 0, w.jobs[:0]
	for _, j := range w.jobs {
		if w.o.Workers > 0 && running == w.o.Workers {
			kept = append(kept, j)
			continue
		}
		if running++; j.began.IsZero() {
			w.start(j, now)
		}
		switch {
		case now.Before(j.look):
		case now.Sub(j.began) < w.needs(j, atOnce):
			w.wait(j, atOnce, now)
		default:
			atOnce--
			w.finish(j)
			continue
		}
		kept = append(kept, j)
	}
	clear(w.jobs[len(kept):])
	w.jobs = kept
}

// finish answers a job.
func (w *work) finish(j *job) {
	status := http.StatusOK
	if w.status != 0 {
		status = w.status
	}
	if w.o.CacheFor > 0 && status == http.StatusOK {
		if w.cached == nil {
			w.cached = map[string]bool{}
		}
		w.cached[j.path] = true
	}
	j.done <- status
}

// load returns the maximum of concurrent requests since the previous call, and the number of all requests.
func (w *work) load() (most, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	most, w.most = w.most, len(w.jobs)
	return most, w.total
}

// ServeHTTP responds when the work is done, even if the client has left.
func (w *work) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	status := http.StatusOK
	switch {
	case strings.HasPrefix(r.URL.Path, "/hang"):
		<-r.Context().Done()
		return
	case strings.HasPrefix(r.URL.Path, "/poll"):
		rig.Sleep(r.Context(), pollFor)
	default:
		j := &job{path: r.URL.Path, done: make(chan int, 1)}
		w.begin(j)
		status = <-j.done
	}
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, "done\n")
}

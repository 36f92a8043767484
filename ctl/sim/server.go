package sim

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// job is a request in the server. It outlives its client's patience.
type job struct {
	began   time.Duration
	times   float64 // multiple of the usual response time
	url     int
	hit     bool           // in the cache
	later   time.Duration  // so much
	permit  breaker.Permit // ViaProxy
	proxy   int32          // ViaProxy
	client  int32
	turn    uint32 // the client's turn when it was sent
	serial  uint32 // changes when the next check of the job is rescheduled, and voids earlier ones
	number  uint32 // changes when the job ends
	live    bool
	awaited bool // a client or proxy waits for its response
}

type server struct {
	*world
	jobs    []job
	free    []int32 // unused jobs
	ended   job     // scratch for end
	atOnce  int     // requests in progress or in line, without the backlog
	running int     // of them with a worker; only with Server.Workers
	line    []int32 // the others
	growth  float64 // of the logarithm of the response time, for each request above Free
	stopped bool
	killed  bool
	reject  *Fault
	cold    Fault
	times   float64
	missing []bool  // from the cache, by URL
	backlog []int32 // arrived while it was stopped
	frozen  []int32 // jobs whose check was due while it was stopped

	// A job that cannot end for long, unless concurrency falls a lot, is parked: it is not
	// checked before that time or that level. It is then checked at the times at which it
	// would have been anyway. So parking does not change the result, but makes the
	// simulation of a collapsed server feasible.
	parked   []ticket
	level    int           // below it the parked jobs are checked again
	parkFrom time.Duration // minimum remaining time of a job to be parked
}

// ticket is a job and its serial.
type ticket struct {
	job    int32
	serial uint32
}

func (s *server) init(w *world) {
	s.world, s.times, s.parkFrom = w, 1, time.Second
	s.missing = make([]bool, w.Server.URLs)
	s.growth = math.Log(w.Server.Factor) / w.Server.Step
}

// accepts reports whether a connection is possible.
func (s *server) accepts() bool { return !s.killed }

// queueFull reports whether the kernel drops the SYN of a new connection. Linux does so if the accept
// queue holds more than its limit, so there is room for one more (sk_acceptq_is_full). A server that
// runs accepts at once, so its queue is empty.
func (s *server) queueFull() bool {
	limit := s.Server.AcceptQueue
	return limit > 0 && s.stopped && len(s.backlog) > limit
}

// job returns a job by its index. The pointer is valid until take.
func (s *server) job(i int32) *job { return &s.jobs[i] }

// take adds a request to the server and returns the index of its job.
func (s *server) take(client int32, turn uint32) int32 {
	var i int32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		i = int32(len(s.jobs))
		s.jobs = append(s.jobs, job{})
	}
	s.result.Sent++
	j := s.job(i)
	*j = job{client: client, turn: turn, serial: j.serial, number: j.number, began: s.now, times: 1, live: true, awaited: true}
	if s.Server.Slow > 0 && s.rand.Float64() < s.Server.Slow {
		j.times = s.Server.SlowTimes
	}
	if s.Server.Spread > 0 {
		j.times *= math.Exp(s.Server.Spread * s.rand.NormFloat64())
	}
	if s.Server.URLs > 0 {
		j.url = s.rand.IntN(s.Server.URLs)
		j.hit = !s.missing[j.url]
	}
	if s.cold.N > 0 && float64(client%10) < 10*s.cold.Times {
		s.cold.N--
		j.later = s.cold.After
	}
	if s.stopped {
		s.backlog = append(s.backlog, i)
		return i
	}
	s.start(i)
	return i
}

// start starts work on a job.
func (s *server) start(i int32) {
	s.atOnce++
	s.result.level(s.now, s.atOnce)
	if s.Server.Workers > 0 && s.running == s.Server.Workers {
		s.line = append(s.line, i)
		return
	}
	s.running++
	s.job(i).began = s.now
	s.wait(i)
}

// freeWorker gives the worker of a job that ended to the next one in line.
func (s *server) freeWorker() {
	s.running--
	if len(s.line) == 0 {
		return
	}
	i := s.line[0]
	s.line = s.line[1:]
	s.running++
	s.job(i).began = s.now
	s.wait(i)
}

// need returns how long a job takes at a concurrency of atOnce.
func (s *server) need(j *job, atOnce int) time.Duration {
	if s.reject != nil && s.reject.After > 0 {
		return s.reject.After
	}
	if j.hit {
		return s.Server.HitTime
	}
	base := float64(s.Server.Base) * j.times * s.times
	if over := atOnce - s.Server.Free; over > 0 {
		base *= math.Exp(s.growth * float64(over))
	}
	return time.Duration(min(base, float64(aDay))) + j.later
}

const aDay = 24 * time.Hour

// wait schedules the next check after Look, or when the job should be done if that is
// sooner.
func (s *server) wait(i int32) {
	j := s.job(i)
	done := s.since(j.began)
	if less := s.atOnce - s.atOnce/8; less > s.Server.Free && s.need(j, less)-done > s.parkFrom {
		s.park(i, less, s.need(j, less)-done)
		return
	}
	s.after(min(s.need(j, s.atOnce)-done, s.Server.Look), jobLook, i, j.serial)
}

func (s *server) park(i int32, less int, span time.Duration) {
	j := s.job(i)
	s.parked = append(s.parked, ticket{i, j.serial})
	s.level = max(s.level, less)
	s.after(span/s.Server.Look*s.Server.Look, jobLook, i, j.serial)
}

// unpark schedules the checks of parked jobs, at the times that they would have had.
func (s *server) unpark() {
	parked := s.parked
	s.parked, s.level = nil, 0
	for _, t := range parked {
		j := s.job(t.job)
		if !j.live || j.serial != t.serial {
			continue
		}
		j.serial++
		s.after(s.Server.Look-s.since(j.began)%s.Server.Look, jobLook, t.job, j.serial)
	}
}

// look ends a job that is done.
func (s *server) look(i int32, serial uint32) {
	j := s.job(i)
	if j.serial != serial || !j.live {
		return
	}
	if s.stopped {
		s.frozen = append(s.frozen, i)
		return
	}
	if s.since(j.began) < s.need(j, s.atOnce) {
		j.serial++ // it is no longer parked
		s.wait(i)
		return
	}
	status := 200
	if s.reject != nil {
		status = 503
	}
	s.atOnce--
	s.result.level(s.now, s.atOnce)
	s.freeWorker()
	s.end(i, status)
	if s.atOnce < s.level {
		s.unpark()
	}
}

// end removes a job and reports its end to the path; status 0 means that its connection was
// reset.
func (s *server) end(i int32, status int) {
	j := s.job(i)
	s.ended = *j
	if s.Server.URLs > 0 && status == 200 {
		s.missing[j.url] = false
	}
	j.live = false
	j.serial++
	j.number++
	s.free = append(s.free, i)
	s.path.responded(&s.ended, status)
}

func (s *server) fault(f *Fault, begins bool) {
	switch f.Kind {
	case Stop:
		s.stopped = begins
		if !begins {
			s.resume()
		}
	case Kill:
		s.killed = begins
		if begins {
			s.die()
		}
	case Reject:
		s.reject = nil
		if begins {
			s.reject = f
		}
		s.unpark()
	case Forget:
		for i := range s.missing {
			s.missing[i] = s.missing[i] || begins
		}
	case Cold:
		s.cold = *f
		switch {
		case !begins:
			s.cold.N = 0
		case f.Lost:
			s.path.endpointLost()
			s.die()
		}
	case Slower:
		s.times = 1
		if begins {
			s.times = f.Times
		}
		s.unpark()
	}
}

// resume continues after a stop: it starts the whole backlog at once, then checks the jobs
// that were in flight before.
func (s *server) resume() {
	backlog, frozen := s.backlog, s.frozen
	s.backlog, s.frozen = nil, nil
	if s.Server.Workers > 0 { // it reads them from many connections, in any order
		s.rand.Shuffle(len(backlog), func(i, j int) { backlog[i], backlog[j] = backlog[j], backlog[i] })
	}
	for _, i := range backlog {
		if s.job(i).live {
			s.start(i)
		}
	}
	for _, i := range frozen {
		s.look(i, s.job(i).serial)
	}
}

// die resets every connection.
func (s *server) die() {
	s.atOnce, s.running, s.line, s.backlog, s.frozen, s.parked, s.level = 0, 0, nil, nil, nil, nil, 0
	s.result.level(s.now, 0)
	for i := range s.jobs {
		if s.jobs[i].live {
			s.end(int32(i), 0)
		}
	}
}

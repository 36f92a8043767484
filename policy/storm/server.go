package storm

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// job is a request at the server. It outlives its caller's patience.
type job struct {
	caller int32
	turn   uint32 // the caller's, when it was sent
	serial uint32 // moves on when the job is looked at otherwise, and voids its looks
	number uint32 // moves on when the job ends
	began  time.Duration
	times  float64 // of the usual time of an answer
	live   bool

	proxy int32 // ViaProxy
	place policy.Place
	heard bool // somebody listens for its answer
}

type server struct {
	*world
	jobs    []job
	free    []int32
	atOnce  int // as the server sees it: without the backlog
	stopped bool
	killed  bool
	reject  *Fault
	times   float64
	backlog []int32 // arrived while it was stopped
	frozen  []int32 // were due to be looked at while it was stopped

	// A job that cannot be done for long, unless there is much less at once,
	// is parked: it is not looked at before that time or that level. It is
	// then looked at when it would have been without, so nothing changes but
	// that a collapsed server can be played at all.
	parked   []ticket
	level    int           // below it the parked are looked at again
	parkFrom time.Duration // how long a job must have nothing to expect to be parked
}

// ticket is a job and its serial.
type ticket struct {
	job    int32
	serial uint32
}

func (s *server) init(w *world) { s.world, s.times, s.parkFrom = w, 1, time.Second }

// accepts says whether a connection is possible.
func (s *server) accepts() bool { return !s.killed }

// take gives the server a request.
func (s *server) take(caller int32, turn uint32) int32 {
	var i int32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		i = int32(len(s.jobs))
		s.jobs = append(s.jobs, job{})
	}
	j := &s.jobs[i]
	*j = job{caller: caller, turn: turn, serial: j.serial, number: j.number, began: s.now, times: 1, live: true, heard: true}
	if s.Server.Slow > 0 && s.rand.Float64() < s.Server.Slow {
		j.times = s.Server.SlowTimes
	}
	if s.Server.Spread > 0 {
		j.times *= math.Exp(s.Server.Spread * s.rand.NormFloat64())
	}
	if s.stopped {
		s.backlog = append(s.backlog, i)
		return i
	}
	s.start(i)
	return i
}

// start begins to work on a job.
func (s *server) start(i int32) {
	s.jobs[i].began = s.now
	s.atOnce++
	s.result.peak(s.now, s.atOnce)
	s.wait(i)
}

// need is how long a job takes with so many at once.
func (s *server) need(j *job, atOnce int) time.Duration {
	if s.reject != nil && s.reject.After > 0 {
		return s.reject.After
	}
	base := float64(s.Server.Base) * j.times * s.times
	if over := atOnce - s.Server.Free; over > 0 {
		base *= math.Pow(s.Server.Factor, float64(over)/s.Server.Step)
	}
	return time.Duration(min(base, float64(aDay)))
}

const aDay = 24 * time.Hour

// wait looks again after Look, or when the job should be done if that is sooner.
func (s *server) wait(i int32) {
	j := &s.jobs[i]
	done := s.since(j.began)
	if less := s.atOnce - s.atOnce/8; less > s.Server.Free && s.need(j, less)-done > s.parkFrom {
		s.park(i, less, s.need(j, less)-done)
		return
	}
	s.after(min(s.need(j, s.atOnce)-done, s.Server.Look), jobLook, i, j.serial)
}

func (s *server) park(i int32, less int, span time.Duration) {
	j := &s.jobs[i]
	s.parked = append(s.parked, ticket{i, j.serial})
	s.level = max(s.level, less)
	s.after(span/s.Server.Look*s.Server.Look, jobLook, i, j.serial)
}

// unpark gives the parked their looks back, at the times they would have had.
func (s *server) unpark() {
	parked := s.parked
	s.parked, s.level = nil, 0
	for _, t := range parked {
		j := &s.jobs[t.job]
		if !j.live || j.serial != t.serial {
			continue
		}
		j.serial++
		s.after(s.Server.Look-s.since(j.began)%s.Server.Look, jobLook, t.job, j.serial)
	}
}

// look ends a job whose time has come.
func (s *server) look(i int32, serial uint32) {
	j := &s.jobs[i]
	if j.serial != serial || !j.live {
		return
	}
	if s.stopped {
		s.frozen = append(s.frozen, i)
		return
	}
	if s.since(j.began) < s.need(j, s.atOnce) {
		j.serial++ // it is not parked any more
		s.wait(i)
		return
	}
	status := 200
	if s.reject != nil {
		status = 503
	}
	s.atOnce--
	s.end(i, status)
	if s.atOnce < s.level {
		s.unpark()
	}
}

// end takes a job away and says so; status 0 = its connection was reset.
func (s *server) end(i int32, status int) {
	j := s.jobs[i]
	s.jobs[i].live = false
	s.jobs[i].serial++
	s.jobs[i].number++
	s.free = append(s.free, i)
	s.path.answered(&j, status)
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
	case Slower:
		s.times = 1
		if begins {
			s.times = f.Times
		}
		s.unpark()
	}
}

// resume works off what came while it was stopped: all of it is taken on at
// once, then what was under way before is looked at.
func (s *server) resume() {
	backlog, frozen := s.backlog, s.frozen
	s.backlog, s.frozen = nil, nil
	for _, i := range backlog {
		if s.jobs[i].live {
			s.start(i)
		}
	}
	for _, i := range frozen {
		s.look(i, s.jobs[i].serial)
	}
}

// die resets every connection.
func (s *server) die() {
	s.atOnce, s.backlog, s.frozen, s.parked, s.level = 0, nil, nil, nil, 0
	for i := range s.jobs {
		if s.jobs[i].live {
			s.end(int32(i), 0)
		}
	}
}

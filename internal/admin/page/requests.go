package page

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Requests are the requests that are kept. Failed and recovered ones are in order from the latest,
// slow ones from the slowest.
type Requests struct {
	Failed    []Request `json:"failed"`
	Recovered []Request `json:"recovered"`
	Slow      []Request `json:"slow"`
}

// Request is a finished request. Times are in microseconds.
type Request struct {
	BeganMS  int64     `json:"began_ms"`   // since 1970
	ID       string    `json:"request_id"` // as in X-Request-Id and the logs; the first 64 bytes
	Route    string    `json:"route"`
	Method   string    `json:"method"`
	Path     string    `json:"path"` // without the query
	Code     int       `json:"code"` // 0: the client got no response
	Outcome  string    `json:"outcome"`
	Why      string    `json:"why"` // the outcome in a sentence
	Took     uint32    `json:"took"`
	Error    string    `json:"error,omitempty"` // what ended the last failed attempt; "" if none failed
	Count    int       `json:"count"`           // of attempts
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one of a request's attempts. Times are in microseconds.
type Attempt struct {
	Began  uint32 `json:"began"` // since the request began
	Took   uint32 `json:"took"`
	Result string `json:"result"` // a status, or what failed
	Class  string `json:"class"`  // of the failure; ok if there is none
	// Set for an attempt that got no connection, otherwise "".
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"` // one line, bounded; parts may come from the upstream
}

// read copies what is kept. It misses requests that end at the same time.
func (j *journal) read(now time.Time) (Requests, uint64) {
	out := Requests{Failed: []Request{}, Recovered: []Request{}, Slow: []Request{}}
	j.mu.Lock()
	defer j.mu.Unlock()
	k := j.kept
	if k == nil {
		return out, j.version
	}
	out.Failed = lastFirst(k.failed[:], k.nextFailed)
	out.Recovered = lastFirst(k.recovered[:], k.nextRes)
	leastSlow(k.slow[:], now) // clears old records
	out.Slow = lastFirst(k.slow[:], 0)
	slices.SortStableFunc(out.Slow, func(a, b Request) int { return int(int64(b.Took) - int64(a.Took)) })
	return out, j.version
}

func (j *journal) changes() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.version
}

func lastFirst(ring []record, next int) []Request {
	out := []Request{}
	for i := range ring {
		if r := &ring[((next-1-i)%len(ring)+len(ring))%len(ring)]; r.began != 0 {
			out = append(out, r.request())
		}
	}
	return out
}

func (r *record) request() Request {
	out := Request{
		BeganMS: r.began / 1e6, ID: shown(r.id[:r.idN], r.idCut), Route: r.route, Method: shown(r.method[:r.methodN], false), Path: shown(r.path[:r.pathN], r.cut),
		Code: int(r.code), Outcome: r.outcome.String(), Why: r.outcome.Explain(), Took: r.took, Error: r.lastError(), Count: int(r.attempts), Attempts: []Attempt{},
	}
	for _, s := range r.steps[:r.n] {
		out.Attempts = append(out.Attempts, s.attempt())
	}
	return out
}

// shown returns text that is valid in JSON, with "…" if it was cut.
func shown(text []byte, cut bool) string {
	s := strings.ToValidUTF8(string(text), "\uFFFD")
	if cut {
		s += "…"
	}
	return s
}

// lastError returns what ended the last failed attempt, after the address of its endpoint; "" if
// none failed.
func (r *record) lastError() string {
	for i := int(r.n) - 1; i >= 0; i-- {
		s := &r.steps[i]
		if !s.failed() {
			continue
		}
		if r.failedAt == "" {
			return s.cameTo()
		}
		return r.failedAt + ": " + s.cameTo()
	}
	return ""
}

// cameTo describes the result of a failed attempt.
func (s *step) cameTo() string {
	switch {
	case s.dial != nil:
		return s.dial.Text()
	case s.status > 0:
		return "status " + strconv.Itoa(int(s.status))
	}
	return s.cause.Explain()
}

func (s *step) attempt() Attempt {
	result := s.cause.String()
	if s.status > 0 {
		result = strconv.Itoa(int(s.status))
	}
	a := Attempt{Began: s.began, Took: s.took, Result: result, Class: s.class.String()}
	if s.dial != nil {
		a.Address, a.Error = s.dial.Addr, s.dial.Text()
		if kind := s.dial.Kind.String(); kind != a.Result {
			a.Result += "_" + kind
		}
	}
	return a
}

package page

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
)

// The requests that are kept: the last that failed, the last that a retry recovered, and the
// slowest of the window.
const (
	keptFailed    = 24
	keptRecovered = 8
	keptSlow      = 12
	maxPath       = 96 // bytes; the rest is cut off
	maxID         = 64 // likewise; a UUID has 36
	maxMethod     = 12 // likewise
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
	Words    string    `json:"words"`         // the outcome for people
	InWords  string    `json:"outcome_words"` // the same for all requests with this outcome
	Why      string    `json:"why"`           // the outcome in a sentence
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

// journal keeps requests. The request path reads floor and until. It takes the lock only if it is
// free, so it never waits; if the lock is taken, the request is not kept.
type journal struct {
	floor atomic.Int64 // a request that took no longer is not among the slowest; nanoseconds
	until atomic.Int64 // when floor must be computed anew; nanoseconds as those of [proxy.Journal]

	mu                sync.Mutex    // guards all fields below
	version           uint64        // changes when the requests change
	failed, recovered []proxy.Ended // from the latest
	slow              []proxy.Ended // from the slowest
}

func (j *journal) wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool {
	k := kindOf(o)
	if k == failed || k == recovered || o == policy.OutcomeClientGone {
		return true
	}
	return o != policy.OutcomeRefused && (int64(took) > j.floor.Load() || endedUnixNano > j.until.Load())
}

func (j *journal) keep(e *proxy.Ended) {
	if !j.mu.TryLock() {
		return
	}
	defer j.mu.Unlock()
	j.version++
	kept := copyOf(e)
	switch kind := kindOf(e.Outcome); {
	case kind == failed || e.Outcome == policy.OutcomeClientGone:
		j.failed = insert(j.failed, 0, kept, keptFailed)
	case kind == recovered:
		j.recovered = insert(j.recovered, 0, kept, keptRecovered)
	}
	j.keepSlow(kept)
}

// copyOf copies a request, cut to a limited size. A text that is too long keeps one byte more than is
// shown of it.
func copyOf(e *proxy.Ended) proxy.Ended {
	c := *e
	c.Method, c.Path, c.RequestID = start(e.Method, maxMethod+1), start(e.Path, maxPath+1), start(e.RequestID, maxID+1)
	c.Steps = slices.Clone(e.Steps)
	return c
}

func start(text []byte, most int) []byte { return slices.Clone(text[:min(len(text), most)]) }

// endOf returns when a request ended.
func endOf(e *proxy.Ended) time.Time { return e.Began.Add(e.Took) }

// insert inserts e at an index, and drops the last request if there are more than most.
func insert(list []proxy.Ended, at int, e proxy.Ended, most int) []proxy.Ended {
	return slices.Insert(list[:min(len(list), most-1)], at, e)
}

// keepSlow adds a request to the slow ones of the window if it is one of the slowest.
func (j *journal) keepSlow(e proxy.Ended) {
	oldest := endOf(&e)
	j.forgetSlow(oldest)
	at := slices.IndexFunc(j.slow, func(s proxy.Ended) bool { return s.Took < e.Took })
	if at < 0 {
		at = len(j.slow)
	}
	if at < keptSlow {
		j.slow = insert(j.slow, at, e, keptSlow)
	}
	floor := int64(0)
	if len(j.slow) == keptSlow {
		floor = int64(j.slow[keptSlow-1].Took)
	}
	for i := range j.slow {
		if end := endOf(&j.slow[i]); end.Before(oldest) {
			oldest = end
		}
	}
	j.floor.Store(floor)
	j.until.Store(oldest.Add(Window).UnixNano())
}

// forgetSlow drops the slow requests that ended before the window.
func (j *journal) forgetSlow(now time.Time) {
	j.slow = slices.DeleteFunc(j.slow, func(e proxy.Ended) bool { return now.Sub(endOf(&e)) > Window })
}

// read returns what is kept. It misses requests that end at the same time.
func (j *journal) read(now time.Time) (Requests, uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forgetSlow(now)
	return Requests{Failed: requestsOf(j.failed), Recovered: requestsOf(j.recovered), Slow: requestsOf(j.slow)}, j.version
}

func (j *journal) changes() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.version
}

func requestsOf(list []proxy.Ended) []Request {
	out := make([]Request, len(list))
	for i := range list {
		out[i] = requestOf(&list[i])
	}
	return out
}

func requestOf(e *proxy.Ended) Request {
	r := Request{
		BeganMS: e.Began.UnixMilli(), ID: shown(e.RequestID, maxID), Route: e.Route, Method: shown(e.Method, maxMethod), Path: shown(e.Path, maxPath),
		Code: e.Code, Outcome: e.Outcome.String(), Words: e.Outcome.WordsFor(shown(e.Method, maxMethod)), InWords: e.Outcome.Words(), Why: e.Outcome.Explain(), Took: max(micros(e.Took), 1), Count: e.Attempts, Attempts: []Attempt{},
	}
	for i := range e.Steps {
		s := &e.Steps[i]
		r.Attempts = append(r.Attempts, attemptOf(s))
		if s.Class != policy.ClassNone && s.Class != policy.Overtaken { // the loser of a hedged request did not fail
			r.Error = failureOf(s)
		}
	}
	return r
}

// shown returns a text, valid in JSON, with "…" for what is cut off.
func shown(text []byte, most int) string {
	s := strings.ToValidUTF8(string(text[:min(len(text), most)]), "\uFFFD")
	if len(text) > most {
		s += "…"
	}
	return s
}

// failureOf describes the result of a failed attempt, after the address of its endpoint if it had one.
func failureOf(s *proxy.Step) string {
	text := s.Cause.Explain()
	switch {
	case s.Dial != nil:
		text = s.Dial.Text()
	case s.Status > 0:
		text = "status " + strconv.Itoa(s.Status)
	}
	if s.Addr != "" {
		return s.Addr + ": " + text
	}
	return text
}

func attemptOf(s *proxy.Step) Attempt {
	a := Attempt{Began: micros(s.Began), Took: micros(s.Took), Result: s.Cause.String(), Class: s.Class.String()}
	if s.Status > 0 {
		a.Result = strconv.Itoa(s.Status)
	}
	if s.Dial != nil {
		a.Address, a.Error = s.Dial.Addr, s.Dial.Text()
		if kind := s.Dial.Kind.String(); kind != a.Result {
			a.Result += "_" + kind
		}
	}
	return a
}

// micros converts d to microseconds; longer than 71 minutes becomes 71 minutes.
func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}

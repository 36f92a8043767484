package request

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/retryafter"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Tokens is what concerns the tokens of a request to a language model's API: what its body says, what
// it takes of rate limits, and what its response says that it used. Only requests of routes that ask
// for it have one.
type Tokens struct {
	look  tokens.Request
	use   admission.Use
	queue *admission.RateLimitQueue // use is taken of it; nil: nothing is
	usage tokens.Usage
	reads bool         // the response of the running attempt is being read
	lost  tokens.Count // what the running attempt used, if it failed
}

// beginTokens prepares for another request.
func (cr *Request) beginTokens() {
	if t := cr.Tokens; t != nil {
		t.queue, t.reads, t.lost = nil, false, tokens.Count{}
		t.look.Reset(0)
	}
}

// Model returns the model that the body names, nil if that was not looked for. It is valid until the
// request ends.
func (cr *Request) Model() []byte {
	if cr.Tokens == nil {
		return nil
	}
	return cr.Tokens.look.Model()
}

// Use returns what the next attempt takes of the rate limit of a key, or nil if that counts no tokens.
func (cr *Request) Use(s *admission.RateLimits, key uint64, now time.Duration) *admission.Use {
	if !s.CountsTokens() {
		return nil
	}
	if cr.Tokens == nil {
		cr.Tokens = &Tokens{}
	}
	t := cr.Tokens
	t.queue, t.use = nil, admission.Use{}
	if cr.HTTP.Body.Empty() {
		return &t.use
	}
	t.use.Cost = ratelimit.Cost{Input: tokens.Estimate(max(cr.HTTP.Body.Length, 0)), Output: t.look.Output}
	if t.use.Cost.Output == 0 {
		t.use.Cost.Output = s.QueueOf(key, now).TypicalOutput()
	}
	return &t.use
}

// Taken notes that the use of an attempt was taken from a queue.
func (cr *Request) Taken(q *admission.RateLimitQueue) {
	if cr.Tokens != nil && cr.Tokens.use.Taken {
		cr.Tokens.queue = q
	}
}

// GiveBackTokens returns the use of an attempt that was not sent.
func (cr *Request) GiveBackTokens() *admission.Use {
	if cr.Tokens == nil {
		return nil
	}
	cr.Tokens.queue = nil
	return &cr.Tokens.use
}

// UnsentTokens gives back what an attempt took of rate limits if no upstream got it.
func (cr *Request) UnsentTokens() {
	if t := cr.Tokens; t != nil && t.queue != nil {
		t.queue.Learn(cr.Process.Clock.Elapsed(), &t.use, nil, true)
	}
}

// LearnLimits reads what the headers of a response say about rate limits, and gives back what a
// rejected attempt took.
func (cr *Request) LearnLimits(r *http1.Response, status int) {
	t := cr.Tokens
	if t == nil || t.queue == nil {
		return
	}
	var said [ratelimit.MaxBuckets]ratelimit.Reading
	n := 0
	if cr.Route.RateLimits.Learns() {
		n = readLimits(r, &said)
	}
	rejected := retryafter.MeansRateLimit(status)
	if n > 0 || rejected {
		t.queue.Learn(cr.Process.Clock.Elapsed(), &t.use, said[:n], rejected)
	}
}

// readLimits sets said to the rate limits that a response describes, and returns how many.
func readLimits(r *http1.Response, said *[ratelimit.MaxBuckets]ratelimit.Reading) (n int) {
	l := retryafter.Limits{Date: r.Get(http1.Date), Now: time.Now()}
	for i := range r.Headers {
		if f := &r.Headers[i]; f.ID == http1.OtherHeader {
			l.Add(f.Name, f.Value)
		}
	}
	if !l.Any {
		return 0
	}
	for i := range retryafter.NumLimits {
		if reading, ok := l.Each(i); ok && n < len(said) {
			said[n] = reading
			n++
		}
	}
	return n
}

// BeginUsage begins to read the usage of a response.
func (cr *Request) BeginUsage(events bool) {
	if cr.Tokens == nil {
		cr.Tokens = &Tokens{}
	}
	cr.Tokens.usage.Reset(events)
	cr.Tokens.reads = true
}

// ReadsUsage reports whether the response is read for its usage.
func (cr *Request) ReadsUsage() bool { return cr.Tokens != nil && cr.Tokens.reads }

// ReadUsage reads a piece of the body of the response.
func (cr *Request) ReadUsage(piece []byte) { cr.Tokens.usage.Read(piece) }

// LoseUsage reads what a response that failed says that it used, and keeps that for TakeLost.
func (cr *Request) LoseUsage(body []byte) {
	cr.BeginUsage(true)
	cr.ReadUsage(body)
	cr.Tokens.lost = cr.EndUsage()
}

// TakeLost returns what the running attempt used if it failed, once.
func (cr *Request) TakeLost() tokens.Count {
	lost := cr.Tokens.lost
	cr.Tokens.lost = tokens.Count{}
	return lost
}

// EndUsage ends the response, and returns what it said that it used.
func (cr *Request) EndUsage() tokens.Count {
	t := cr.Tokens
	if t == nil || !t.reads {
		return tokens.Count{}
	}
	t.reads = false
	used := t.usage.Count()
	if t.queue != nil && used.Any() {
		t.queue.Settle(cr.Process.Clock.Elapsed(), &t.use, ratelimit.Cost{Input: used.Input + used.Cached, Output: used.Output})
	}
	return used
}

package request

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/retryafter"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// Tokens is what concerns the tokens of a request to a language model's API: what its body says, what
// it takes of rate limits, and what its response says that it used. Only requests of routes that ask
// for it have one.
type Tokens struct {
	of    *Request
	look  tokens.Request
	use   admission.Use
	usage tokens.Usage
	reads bool         // the response of the running attempt is being read
	lost  tokens.Count // what the running attempt used, if it failed
}

// NeedTokens returns the request's Tokens, and makes them if there are none.
func (r *Request) NeedTokens() *Tokens {
	if r.Tokens == nil {
		r.Tokens = &Tokens{of: r}
	}
	return r.Tokens
}

// begin prepares for another request. t may be nil, as for the methods below that say so.
func (t *Tokens) begin() {
	if t != nil {
		t.use, t.reads, t.lost = admission.Use{}, false, tokens.Count{}
		t.look.Reset(0)
	}
}

// Model returns the model that the path or the body names, nil if that was not looked for. It is valid
// until the request ends. t may be nil.
func (t *Tokens) Model() []byte {
	if t == nil {
		return nil
	}
	return t.look.Model()
}

// Expect returns what is estimated of the next attempt, for a rate limit that counts tokens.
func (t *Tokens) Expect() *admission.Use {
	var e ratelimit.Estimate
	if body := t.of.HTTP.Body; !body.Empty() {
		e = ratelimit.Estimate{Input: t.look.Input(body.Length), Output: t.look.Output, Unbounded: t.look.Output == 0}
	}
	t.use = admission.Use{Estimate: e}
	return &t.use
}

// Unsent gives back what an attempt took of rate limits if no upstream got it.
func (t *Tokens) Unsent() { t.use.Learn(nil, true) }

// Learn reads what the headers of a response say about rate limits, and gives back what a rejected
// attempt took.
func (t *Tokens) Learn(r *http1.Response, status int) {
	if !t.use.IsCounted() {
		return
	}
	var said [ratelimit.MaxBuckets]ratelimit.Reading
	n := 0
	if t.use.Learns() {
		n = readLimits(r, &said)
	}
	rejected := retryafter.MeansRateLimit(status)
	if n > 0 || rejected {
		t.use.Learn(said[:n], rejected)
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
func (t *Tokens) BeginUsage(events bool) {
	t.usage.Reset(events)
	t.reads = true
}

// ReadsUsage reports whether the response is read for its usage. t may be nil.
func (t *Tokens) ReadsUsage() bool { return t != nil && t.reads }

// ReadUsage reads a piece of the body of the response, if that is read. t may be nil.
func (t *Tokens) ReadUsage(piece []byte) {
	if t.ReadsUsage() {
		t.usage.Read(piece)
	}
}

// EndUsage ends the response, and returns what it said that it used.
func (t *Tokens) EndUsage() tokens.Count {
	if !t.reads {
		return tokens.Count{}
	}
	t.reads = false
	used := t.usage.Count()
	if used.Any() {
		limited := t.usage.Limited()
		t.use.Settle(ratelimit.Cost{Input: limited.Input, Output: limited.Output})
	}
	return used
}

// LoseUsage reads what a response that failed says that it used, and keeps that for TakeLost.
func (t *Tokens) LoseUsage(body []byte) {
	t.BeginUsage(true)
	t.ReadUsage(body)
	t.lost = t.EndUsage()
}

// TakeLost returns what the running attempt used if it failed, once.
func (t *Tokens) TakeLost() tokens.Count {
	lost := t.lost
	t.lost = tokens.Count{}
	return lost
}

// lookTime bounds the wait for the part of a body that is looked at. A body that comes more slowly
// does not say what is looked for.
const lookTime = BodyGrace

// lookAtBody reads the beginning of the body into the client's buffer, as far as it takes to find what is
// wanted, and leaves it there. At most tokens.MaxLook bytes are read.
//
// A model that the path names is not looked for in the body.
func (r *Request) lookAtBody(want tokens.Want) {
	look := &r.NeedTokens().look
	look.Reset(want)
	if want&tokens.WantModel != 0 {
		look.ReadPath(r.HTTP.Path)
	}
	if look.Done() || r.HTTP.Body.Empty() || r.HTTP.Upgrade != nil || r.GRPC {
		return
	}
	b := bodyLook{left: r.HTTP.Body.Length, chunked: r.HTTP.Body.Kind == http1.BodyChunked}
	if r.HTTP.Body.Kind == http1.BodyStream {
		b.left = math.MaxInt64
	}
	c := r.Conn
	b.read(look, c.Peek())
	for until := r.Time.Began.Add(lookTime); !look.Done() && !b.ended && r.readAhead(until); {
		b.read(look, c.Peek()[b.taken:])
	}
}

// readAhead reads once behind what the client's buffer has, without taking anything from it.
func (r *Request) readAhead(until clock.Instant) bool {
	c := r.Conn
	if r.HTTP.ExpectContinue && !r.continued {
		r.continued, r.expectsContinue = true, true
		r.ContinueClient()
	}
	r.DetachHeaders(buffer.Large)
	for c.HasRoom() && !c.BodyEnded() {
		c.SetRead(until, 0)
		err := c.FillBody()
		if err == nil {
			r.Time.Tick()
			return true
		}
		if !rawsocket.IsTimeout(err) || !r.Time.Now().Before(until) {
			return false // whoever reads the body finds out
		}
		c.ReadMoved() // somebody woke us
		time.Sleep(time.Millisecond)
	}
	return false
}

// bodyLook goes through a body in the client's buffer, free of its framing.
type bodyLook struct {
	chunked bool
	left    int64 // of a body with a length
	decoder http1.Chunked
	taken   int // bytes of the buffer
	ended   bool
}

// read passes what has come to look.
func (b *bodyLook) read(look *tokens.Request, p []byte) {
	if !b.chunked {
		n := int(min(int64(len(p)), b.left))
		look.Read(p[:n])
		b.taken += n
		b.left -= int64(n)
		b.ended = b.left == 0
		return
	}
	for len(p) > 0 && !b.ended {
		n, data, err := b.decoder.Next(p)
		look.Read(data)
		b.taken += n
		p = p[n:]
		b.ended = err != nil || b.decoder.Done()
	}
}

package breaker

import (
	"testing"
	"time"
)

// uploadsInSlowStart returns a guard in slow start, with n incomplete requests in the queue, of which
// it admits some.
func uploadsInSlowStart(t *testing.T, n int) *guardHarness {
	d := inSlowStart(t)
	for range n {
		d.queue(Request{Unfinished: true})
	}
	return d
}

// queue takes a permit for r or puts it in the queue.
func (d *guardHarness) queue(r Request) Verdict {
	d.t.Helper()
	p, v := d.g.Acquire(d.now, r)
	if v <= VerdictProbe {
		d.out = append(d.out, p)
	} else {
		d.waiting = append(d.waiting, r)
		d.line++
	}
	return v
}

// Slow uploads cannot be answered, so they do not hold the permits of others in slow start.
func TestSlowUploadsDoNotHoldUpASlowStart(t *testing.T) {
	d := uploadsInSlowStart(t, 100)
	uploads, limit := len(d.out), d.g.State().ConcurrencyLimit
	if uploads == 0 || uploads > limit {
		t.Fatalf("%d uploads at once, limit %d", uploads, limit)
	}
	for i := range limit {
		if v := d.queue(Request{}); v != VerdictGo {
			t.Fatalf("verdict %d for complete request %d of %d, with uploads in flight and waiting", v, i, limit)
		}
	}
	if v := d.queue(Request{}); v != VerdictSuspect {
		t.Fatalf("verdict %d above the limit", v)
	}
	d.queue(Request{Unfinished: true}) // the newest
	d.end(uploads, AttemptEnd{Kind: Unsent})
	if n := len(d.out) - uploads; n != limit || d.out[len(d.out)-1].Sending() || len(d.waiting) != d.line {
		t.Errorf("a permit became free, and the complete request did not get it, or %d did", n-limit+1)
	}
}

// The bodies of ordinary requests arrive soon, and perhaps at the same moment.
func TestASlowStartIsNotFloodedByOrdinaryBodies(t *testing.T) {
	d := uploadsInSlowStart(t, 500)
	limit := d.g.State().ConcurrencyLimit
	for range 10 {
		for i, p := range d.out {
			d.out[i] = d.sent(p)
		}
		if n := len(d.out); n > limit+(limit+1)/2 {
			t.Fatalf("%d complete requests at once, limit %d", n, limit)
		}
	}
	for range len(d.out) {
		d.end(0, AttemptEnd{Status: 200})
	}
	if len(d.out) == 0 {
		t.Error("none is admitted after them")
	}
}

// Where nothing is answered, slow uploads do not hold up others like them for ever.
func TestUploadsTrickleBesideSlowOnes(t *testing.T) {
	d := uploadsInSlowStart(t, 100)
	d.advance(time.Second) // the slow start reaches its top
	before := len(d.out)
	d.advance(3 * time.Second)
	if n := len(d.out) - before; n < 5 || n > 15 {
		t.Errorf("%d more uploads within 3 s, want about 10", n)
	}
}

// Uploads that were in flight before a limit bound leave room for others.
func TestUploadsFromBeforeALimitDoNotCount(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for range 100 {
		d.out = append(d.out, d.sending())
	}
	d.refuseOnce(0)
	if v := d.queue(Request{Unfinished: true}); v != VerdictGo {
		t.Fatalf("verdict %d for another upload", v)
	}
	for range 500 {
		d.queue(Request{Unfinished: true})
	}
	for range 100 {
		d.end(0, AttemptEnd{Kind: Abandoned, Closed: true})
	}
	for range 3 {
		for i, p := range d.out {
			d.out[i] = d.sent(p)
		}
	}
	for range len(d.out) { // the last uploads from before end here
		d.end(0, AttemptEnd{Status: 200})
	}
	if n, limit := len(d.out), d.g.State().ConcurrencyLimit; n > (limit+1)/2 {
		t.Errorf("%d uploads at once, limit %d", n, limit)
	}
}

// Uploads take at most half of a fixed limit, rounded up. The limit counts all requests in flight.
func TestUploadsTakeHalfOfAFixedLimit(t *testing.T) {
	for limit, share := range map[int]int{1: 1, 2: 1, 5: 3, 10: 5} {
		for _, o := range []Options{{}, {NoBreaker: true}} {
			o.ConcurrencyLimit, o.FixedLimit = ConcurrencyLimitFixed, limit
			d := newGuardHarness(t, o)
			for range 2 * limit {
				d.queue(Request{Unfinished: true})
			}
			if n := len(d.out); n != share {
				t.Fatalf("%d uploads in flight, limit %d", n, limit)
			}
			for range 2 * limit {
				d.queue(Request{})
			}
			if n := len(d.out); n != limit {
				t.Fatalf("%d requests in flight, limit %d", n, limit)
			}
			d.out[0] = d.sent(d.out[0])
			if n := len(d.out); n != limit {
				t.Fatalf("%d requests in flight, limit %d, when an upload is complete", n, limit)
			}
			d.queue(Request{Unfinished: true}) // the newest
			d.end(0, AttemptEnd{Status: 200})
			if n := len(d.out); n != limit || !d.out[n-1].Sending() {
				t.Errorf("%d requests in flight, limit %d, and the upload is not among them", n, limit)
			}
		}
	}
}

// Uploads that end together after a pause without other requests were not sent before it.
func TestUploadsThatEndAfterAPauseAreNoSilence(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	d.advance(time.Second)
	p, q := d.sending(), d.sending()
	d.g.Expire(d.now)
	d.now += time.Minute
	d.sent(p)
	d.sent(q)
	d.advance(50 * time.Millisecond)
	d.acquire()
	if s := d.g.State(); s.Suspect || s.Breaker != Closed {
		t.Errorf("%+v", s)
	}
}

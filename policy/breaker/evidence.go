package breaker

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// evidence counts how attempts ended over the last seconds and decides when the upstream as
// a whole fails. It has four rules:
//
//   - Share: within the last second, or the last five, at least 20 attempts ended, 90 % of them
//     failed, and good responses came at less than half of their usual rate.
//   - Row: at least ten attempts failed without a good response between them, for as long as
//     twenty good ones usually take to come. This detects an outage under load in a moment.
//   - Loss: the connections of nearly all attempts in flight ended at once, as when a process
//     is killed. Successes before that say nothing, so the other rules would be late.
//   - Nothing but 500: for a second, of at least five URLs and three clients. A 500 by itself
//     concerns one request.
//
// Of these, share and row do not apply if nearly all failures have one URL and another one was answered
// lately; see oneURL. So a client that sends nothing but failing requests stops nobody else.
type evidence struct {
	slots    [evidenceSlots]evidenceSlot
	slot     int64   // number of the current slot
	meanGood float64 // good responses per slot, a mean that decays over evidenceWindow

	trouble
}

// trouble is what is known of failures, since the first one after a pause of evidenceWindow. It is forgotten
// in place: a copy of it would be in the stack of each request that waits.
type trouble struct {
	byURL      [64]failures  // by hash of the URL
	clients    uint64        // hashes of the clients that saw them, as bits
	unanswered int           // failures without a response in time, less other ones
	until      time.Duration // when these are forgotten; 0: there are none

	row   run // failures since the last good response
	burst run // attempts that were lost at once
}

type evidenceSlot struct{ good, bad int64 }

// failures are those of URLs with the same hash, which nearly always is one URL.
type failures struct {
	n   uint16
	key uint32 // of the latest
}

// run is a number of events of one kind, and since when they are counted.
type run struct {
	n     int
	began time.Duration
}

// add counts an event.
func (r *run) add(now time.Duration) {
	if r.n == 0 {
		r.began = now
	}
	r.n++
}

const (
	evidenceSlotTime = 100 * time.Millisecond // the precision of all of it, a tenth of the shortest window
	evidenceSlots    = int64(evidenceWindow / evidenceSlotTime)
	evidenceWindow   = 5 * time.Second // as long as a service of few requests needs for many attempts

	// many attempts are judged by their share and their latencies, as latency.EstablishedSamples
	// describe a distribution. several are more than a few clients that left, and more in
	// flight than the retry budget's burst retries: failures in a row, losses at once, an overload.
	many    = latency.EstablishedSamples
	several = 10

	evidenceShare = 0.9 // of many that failed: one endpoint of ten may work, and nobody is helped by it
	sameURLShare  = 0.8 // of the failures that points to one URL: others fail beside it now and then
	few           = 5   // usual good responses, of which half says nothing; URLs that fail, if nothing but 500 comes
)

// advance drops what is older than the window.
func (e *evidence) advance(now time.Duration) {
	slot := int64(max(now, 0) / evidenceSlotTime)
	for n := min(slot-e.slot, evidenceSlots); n > 0; n-- {
		e.meanGood += (float64(e.slots[(slot-n)%evidenceSlots].good) - e.meanGood) / float64(evidenceSlots)
		e.slots[(slot-n+1)%evidenceSlots] = evidenceSlot{}
	}
	e.slot = max(e.slot, slot)
	if e.until != 0 && now >= e.until {
		e.trouble = trouble{}
	}
}

// restart forgets everything.
func (e *evidence) restart() {
	slot := e.slot
	*e = evidence{}
	e.slot = slot
}

// expectFailures makes URLs and send times of good responses matter for a while.
func (e *evidence) expectFailures(now time.Duration) {
	e.advance(now)
	e.until = now + evidenceWindow
}

// good counts n good responses.
func (e *evidence) good(now time.Duration, n int64) {
	e.advance(now)
	e.slots[e.slot%evidenceSlots].good += n
	e.row = run{}
}

// goodSent records when the request of a good response was sent. Of a loss, those sent
// before it are the survivors.
func (e *evidence) goodSent(sent time.Duration) {
	if sent < e.burst.began {
		e.burst.n -= int(1 / (1 - evidenceShare))
	}
}

// bad counts a failed attempt, sent at sent. With soft it is a 500 that is a failure only if
// nothing else comes.
func (e *evidence) bad(sent, now time.Duration, end AttemptEnd, soft bool) {
	e.expectFailures(now)
	if end.Key != 0 {
		f := &e.byURL[urlHash(end.Key)]
		f.n, f.key = min(f.n, 1<<15)+1, end.Key
	}
	e.clients |= 1 << (end.Client % 64)
	e.row.add(now)
	if soft {
		return
	}
	e.slots[e.slot%evidenceSlots].bad++
	e.unanswered--
	if end.Kind == TimedOut || end.Kind == Abandoned {
		e.unanswered += 2
	}
	if end.Kind == Reset {
		e.lose(sent, now)
	}
}

// lose counts a lost connection.
func (e *evidence) lose(sent, now time.Duration) {
	b := &e.burst
	if b.n == 0 || now-b.began > overdueMin {
		*b = run{began: now}
	}
	if sent < b.began {
		b.n++
	}
}

// lostAll reports whether nearly all attempts in flight were lost at once; others is the
// number of those that were not.
func (e *evidence) lostAll(others int64) bool {
	return e.burst.n >= max(several, min(many, e.burst.n+int(others)))
}

// losing reports whether the upstream may be losing everything, in flight or in a row, which turns
// out within overdueMin.
func (e *evidence) losing(now time.Duration) bool {
	return e.burst.n > 0 && now < e.burst.began+overdueMin || e.row.n >= several && now < e.until-evidenceWindow+overdueMin
}

// shows reports whether the upstream as a whole fails, after bad, by share or in a row.
func (e *evidence) shows(now time.Duration) bool {
	var good, bad int64
	for i := range evidenceSlots {
		s := &e.slots[(e.slot-i+evidenceSlots)%evidenceSlots]
		good += s.good
		bad += s.bad
		usual, short := e.meanGood*float64(i+1), i+1 < evidenceSlots
		switch {
		case short && (i+1 != int64(latency.FoldEvery/evidenceSlotTime) || usual >= 0.5 && usual < few): // too few to judge by their number
		case good+bad >= many && float64(bad) >= evidenceShare*float64(good+bad) && (good < 2 || 2*float64(good) < usual):
			return true
		}
	}
	return e.inRow(now)
}

// inRow reports whether enough failures came in a row.
func (e *evidence) inRow(now time.Duration) bool {
	return e.row.n >= several && e.missing(now) >= many
}

// missing returns how many good responses are missing in a row of failures, at the rate of the
// second before it.
func (e *evidence) missing(now time.Duration) float64 {
	lasts := now - e.row.began
	good := int64(0)
	for i := range min(int64((lasts+time.Second)/evidenceSlotTime), evidenceSlots) {
		good += e.slots[(e.slot-i+evidenceSlots)%evidenceSlots].good
	}
	return float64(good) * lasts.Seconds()
}

// only500 reports whether nothing but 500 came for long enough.
func (e *evidence) only500(now time.Duration) bool {
	return e.row.n >= several && now-e.row.began >= latency.FoldEvery && e.urls() >= few && bits.OnesCount64(e.clients) >= manyClients
}

// urls returns the number of URLs that fail, as far as their hashes differ.
func (e *evidence) urls() (n int) {
	for _, f := range &e.byURL {
		n += int(min(f.n, 1))
	}
	return n
}

// rarelyGood reports whether too few good responses are usual to judge by their number.
func (e *evidence) rarelyGood() bool { return e.meanGood*float64(evidenceSlots) < few }

// mostlyUnanswered reports whether most failures are missing responses.
func (e *evidence) mostlyUnanswered() bool { return e.unanswered > 0 }

// oneURL reports whether nearly all failures have the same URL, and returns its key; otherwise 0.
func (e *evidence) oneURL() (key uint32, one bool) {
	all, most := 0, failures{}
	for _, f := range &e.byURL {
		all += int(f.n)
		if f.n > most.n {
			most = f
		}
	}
	if most.n == 0 || float64(most.n) < sameURLShare*float64(all) {
		return 0, false
	}
	return most.key, true
}

// urlHash returns the hash of a URL in evidence.
func urlHash(key uint32) uint32 { return key / 2 % 64 } // the lowest bit is always set

// connections holds the evidence of failed connections. One address may stand for several
// servers, as a Kubernetes Service does, so a refused connection is evidence about one of
// them. It is evidence about the upstream as a whole if nothing contradicts it since the
// attempt began: no connection was accepted, and no request sent since was answered. To find
// out, the proxy dials some more times before it reports the attempt (see Guard.DialRetried).
//
// Responses to requests sent earlier do not count: an application that shuts down refuses
// connections while it finishes its work.
//
// Something in front of an upstream that is down may still accept connections, and close them. So
// after a lost connection the proxy opens another one and sends nothing on it (see Guard.Probe). If
// that ends too, no response came meanwhile, and no older attempt is still in flight, nothing is
// behind it. A server that closes what exceeds its own limit of connections responds on the others.
type connections struct {
	acceptedAt atomic.Int64  // when the upstream last accepted a connection
	servedAt   time.Duration // when the latest request with a good response was sent
	check      checkState    // of the connection after a lost one
}

type checkState uint8

const (
	noCheck checkState = iota
	checkDue
	checking
)

// contradicted reports whether a connection was accepted after at, or a request sent after at
// got a good response.
func (c *connections) contradicted(at time.Duration) bool {
	return time.Duration(c.acceptedAt.Load()) > at || c.servedAt > at
}

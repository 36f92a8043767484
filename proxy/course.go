package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// course is how far a request has come. Its zero value is that of one just begun.
type course struct {
	id       []byte // X-Request-Id
	madeKey  []byte // the Idempotency-Key that we gave the request
	reason   string // of a refusal, for the logs
	avoid    string // the address the last attempt failed on
	fellBack string // what answered in the upstream's place, as X-Retryproxy-Fallback tells it

	member  *upstream.Endpoint // of avoid, as one of several; nil where there is one, or no connection was made
	dialErr *upstream.DialError
	slot    *rateLimitDoor // a slot of which is taken for an attempt that is not sent yet
	hedge   hedging

	clientWaits forward.Deadline // what the client said of its patience

	sentAt      instant // the request was first fully sent, or first failed
	deadline    instant // zero: none (yet)
	clientUntil instant // when the client leaves, by its own words; zero: it did not say
	holdUntil   instant // end of all waiting at a breaker; zero: not begun
	firstEnd    instant // of an attempt
	lastEnd     instant
	relayed     instant // when the response was relayed whole; zero: not yet
	wait        time.Duration
	bodyOut     int64 // bytes of response bodies given to the client's connection
	attempts    int
	retries     int
	retryAfter  int // for our own 503, in seconds; 0: none

	cause      policy.Cause  // of the last attempt
	noAttempt  policy.Reason // why the attempt found no descriptor for its connection; none: it was made
	barred     barrier
	expect     bool // the client waits for a 100 that nobody sent yet
	started    bool // bytes of the final response went to the client
	aborting   bool // the client's connection must end, in a way that looks broken
	safe       bool
	nested     bool
	freeUsed   bool
	patient    bool // no retry is possible any more: the attempt has all the time that is left
	wouldRetry bool // counted, in a route that observes
	token      bool // a budget's token is taken for a retry that is not sent yet
	asked      bool // the throttle let the attempt pass and waits to hear of it
	dropped    bool // out of a full line
	failed     bool // an attempt did
	exposed    bool // the upstream may have done the work; see policy.Class.Exposes
	spliced    bool // the kernel has moved some of the body; of the pump while it runs
}

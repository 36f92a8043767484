package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// requestState is how far a request has come. Its zero value is that of one just begun.
type requestState struct {
	id           []byte // X-Request-Id
	generatedKey []byte // the Idempotency-Key that we gave the request
	reason       string // of a refusal, for the logs
	avoid        string // the address the last attempt failed on
	fallbackKind string // what answered in the upstream's place, as X-Retryproxy-Fallback tells it

	endpoint      *upstream.Endpoint // of avoid, as one of several; nil where there is one, or no connection was made
	dialErr       *upstream.DialError
	rateLimitSlot *rateLimitQueue // a slot of which is taken for an attempt that is not sent yet
	hedge         hedgeState

	clientDeadline forward.Deadline // what the client said of its patience

	sentAt         instant // the request was first fully sent, or first failed
	deadline       instant // zero: none (yet)
	clientLeavesAt instant // when the client leaves, by its own words; zero: it did not say
	queueUntil     instant // end of all waiting at a breaker; zero: not begun
	firstEnd       instant // of an attempt
	lastEnd        instant
	relayedAt      instant // when the response was relayed whole; zero: not yet
	wait           time.Duration
	bodyBytesSent  int64 // bytes of response bodies given to the client's connection
	attempts       int
	retries        int
	retryAfter     int // for our own 503, in seconds; 0: none

	cause            policy.Cause  // of the last attempt
	noAttemptReason  policy.Reason // why the attempt found no descriptor for its connection; none: it was made
	rejectedBy       rejectingStage
	expectsContinue  bool // the client waits for a 100 that nobody sent yet
	started          bool // bytes of the final response went to the client
	mustReset        bool // the client's connection must end, in a way that looks broken
	safe             bool
	layered          bool
	freeRetryUsed    bool
	lastAttempt      bool // no retry is possible any more: the attempt has all the time that is left
	wouldRetry       bool // counted, in a route that observes
	hasBudgetToken   bool // a budget's token is taken for a retry that is not sent yet
	throttlerAsked   bool // the throttle let the attempt pass and waits to hear of it
	droppedFromQueue bool // out of a full queue
	failed           bool // an attempt did
	exposed          bool // the upstream may have done the work; see policy.Class.Exposes
	spliced          bool // the kernel has moved some of the body; of the pump while it runs
}

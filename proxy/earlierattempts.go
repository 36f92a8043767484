package proxy

import "github.com/retryproxy/retryproxy/proxy/http1"

// get is the value of the request's first field with the id, nil when there is none. Most
// that are asked for are not there, which is known without a look at each field.
func (x *exchange) get(id http1.HeaderName) []byte {
	if !x.headerNames.Has(id) {
		return nil
	}
	return x.req.Get(id)
}

// maxEarlierAttempts bounds what is believed of the attempts before ours; more of them
// change nothing any more.
const maxEarlierAttempts = 100

// attemptCountHeaders are the fields by which proxies before us tell of their attempts.
const attemptCountHeaders = 1<<http1.XRetryproxyAttempt | 1<<http1.XEnvoyAttemptCount | 1<<http1.GRPCPreviousRPCAttempts

// readEarlierAttempts reads what proxies before us say of their attempts.
func (x *exchange) readEarlierAttempts() {
	x.earlierAttempts = int(min(max(x.attemptFromHeader()-1, 0), maxEarlierAttempts))
	if x.isRetry() {
		x.maxRetries = x.route.LayeredRetries.MaxRetries(x.maxRetries)
		x.layered = x.maxRetries < 1
	}
}

// attemptFromHeader is which attempt of a retryproxy before us this is; 0: none says so that is
// believed. The field is replaced by ours whether it is believed or not.
func (x *exchange) attemptFromHeader() int64 {
	if !x.c.peer.IsBelieved() {
		return 0
	}
	return x.countIn(http1.XRetryproxyAttempt)
}

// isRetry says whether a proxy before us sent this request before. Envoy's and
// gRPC's fields are believed from anyone: they can only lower the sender's own retries.
func (x *exchange) isRetry() bool {
	return x.attemptFromHeader() > 1 || x.countIn(http1.XEnvoyAttemptCount) > 1 ||
		x.countIn(http1.GRPCPreviousRPCAttempts) > 0
}

func (x *exchange) countIn(id http1.HeaderName) int64 {
	n, ok := http1.ParseUint(x.get(id))
	if !ok {
		return 0
	}
	return int64(n)
}

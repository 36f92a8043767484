package request

import "github.com/retryproxy/retryproxy/proxy/http1"

// Get returns the value of the request's first header with that name, or nil. Most names that are
// asked for are absent, which is known without a look at each header.
func (cr *Request) Get(id http1.HeaderName) []byte {
	if !cr.HeaderNames.Has(id) {
		return nil
	}
	return cr.HTTP.Get(id)
}

// maxEarlierAttempts bounds how many earlier attempts are believed. More change nothing.
const maxEarlierAttempts = 100

// AttemptCountHeaders are the headers by which clients and proxies before us tell how often they
// sent the request. X-Stainless-Retry-Count is that of the vendors' clients of OpenAI, Anthropic and
// others.
const AttemptCountHeaders = 1<<http1.XRetryproxyAttempt | 1<<http1.XEnvoyAttemptCount | 1<<http1.GRPCPreviousRPCAttempts |
	1<<http1.XStainlessRetryCount

// ReadEarlierAttempts reads how often proxies before us sent the request.
func (cr *Request) ReadEarlierAttempts() {
	cr.EarlierAttempts = int(min(max(cr.attemptFromHeader()-1, 0), maxEarlierAttempts))
	if cr.isRetry() {
		cr.MaxRetries = cr.Route.LayeredRetries.MaxRetries(cr.MaxRetries)
		cr.Layered = cr.MaxRetries < 1
	}
}

// attemptFromHeader returns which attempt of another retryproxy this request is, or 0 if no trusted
// header says so. The header is replaced by ours in either case.
func (cr *Request) attemptFromHeader() int64 {
	if !cr.Conn.Peer.IsBelieved() {
		return 0
	}
	return cr.countIn(http1.XRetryproxyAttempt)
}

// isRetry reports whether somebody before us has already sent this request. All headers but ours
// are believed from anyone: they can only lower the sender's own retries.
func (cr *Request) isRetry() bool {
	return cr.attemptFromHeader() > 1 || cr.countIn(http1.XEnvoyAttemptCount) > 1 ||
		cr.countIn(http1.GRPCPreviousRPCAttempts) > 0 || cr.countIn(http1.XStainlessRetryCount) > 0
}

func (cr *Request) countIn(id http1.HeaderName) int64 {
	n, ok := http1.ParseUint(cr.Get(id))
	if !ok {
		return 0
	}
	return int64(n)
}

// Package policy answers two questions about a request that failed: may it be
// retried, and after how long? It also decides which attempts may begin at all.
//
// The package is pure. It opens no socket, reads no clock, writes no log and starts no
// goroutine. Time and randomness are arguments, so the same arguments return the same
// result and a test needs no waiting. It imports only the standard library and the packages
// below it; a test enforces that.
//
// Begin with [Policy.Decide]. It takes the result of one attempt ([Attempt]) and the state
// of the request ([Situation]), and returns one [Decision]: whether to retry, when, and a
// [Reason] in both cases. The rest can be read on its own:
//
//   - [RetryOn]: which responses and failures are retried at all.
//   - [Class]: how certain it is that the upstream did nothing with the request.
//   - [LayeredRetries]: how many retries a request gets that is itself a retry of another proxy.
//   - [Plan] and [Worst]: what a policy will do, computed in advance.
//
// Each pattern is a package of its own below this one. Those packages do not import this
// one; a test enforces that:
//
//   - backoff: how long to wait; nine strategies.
//   - retryafter: how long the headers of a response ask us to wait.
//   - apierror: what the body of an error says about a retry.
//   - budget: how many retries all requests to an upstream may cost.
//   - breaker: circuit breaker and concurrency limit of one upstream.
//   - ratelimit: attempts per second, and pauses that a 429 asks for.
//   - hedge: when a second attempt is sent beside the first.
//   - latency, queue, status: building blocks of the packages above.
//
// Many goroutines read a [Policy] at the same time, so it must not be changed after its
// first use. Types with state are in budget, breaker, ratelimit and hedge. They document whether
// they are safe for concurrent use.
//
// An attempt is each send to the upstream. A retry is every attempt after the first. Retry
// numbers in a backoff.Step count from 0, so 0 is the wait before the second attempt.
package policy

// Package policy answers two questions about a request that failed: may it be
// retried, and after how long? It also decides which attempts may begin at all.
//
// It is pure. It opens no socket, reads no clock, writes no log and starts no
// goroutine; time and randomness are arguments, so the same arguments give the
// same result and a test needs no waiting. It imports only the standard
// library; a test holds it to that.
//
// Begin with [Policy.Decide]. It takes the result of one attempt ([Attempt]) and
// the state of the request ([Situation]), and returns one [Decision]: retry or
// not, when, and a [Reason] in both cases. The rest can be read alone:
//
//   - [RetryOn]: which responses and failures are retried at all.
//   - [Class]: how sure we are that the upstream did nothing with the request.
//   - [Backoff]: how long to wait; nine strategies, made by [New] from a name.
//   - [ParseRetryAfter]: how long the upstream asks us to wait.
//   - [Guard]: circuit breaker and concurrency limit of one upstream.
//   - [Budget]: how many retries all requests to an upstream may cost.
//   - [RateLimiter], [RateLimitPauses]: attempts per second, and pauses that a 429 asks for.
//   - [LayeredRetries]: how many retries a request gets that is itself a retry of another proxy.
//   - [Plan] and [Worst]: what a policy will do, computed beforehand.
//
// A [Policy] is read by many goroutines at once and must not be changed after
// its first use. What has state says so and whether it is safe for concurrent use:
// [Guard], [Budget], [RateLimiter], [RateLimitPauses], [ClientThrottler] and [Hedge].
//
// An attempt is each send to the upstream, a retry every attempt after the
// first. Retry numbers in a [Step] count from 0, so 0 is the wait before
// the second attempt.
package policy

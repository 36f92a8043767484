// Package policy answers two questions about a request that failed: may it be
// sent again, and after how long?
//
// It is pure. It opens no socket, reads no clock, writes no log and starts no
// goroutine; time and randomness are arguments, so the same arguments give the
// same answer and a test needs no waiting. It imports only the standard
// library, and a test keeps it so.
//
// Begin with [Policy.Decide]. It takes what one attempt brought ([Attempt])
// and where the request stands ([Situation]) and returns one [Decision]: repeat
// or not, when, and a [Reason] either way. Everything else is a part of that
// answer and can be read alone:
//
//   - [RetryOn]: which answers and failures are worth a retry at all.
//   - [Class]: how sure we are that the upstream did nothing with the request.
//   - [Backoff]: how long to wait; nine strategies, made by [New] from a name.
//   - [ParseRetryAfter]: how long the upstream asked us to wait.
//   - [Budget]: how many retries all requests together may cost.
//   - [Nested]: what is left for a request that another proxy retries already.
//   - [Plan] and [Worst]: what a policy will do, worked out beforehand.
//
// A [Policy] is read by many goroutines at once and must not be changed after
// its first use. A [Budget] is the only thing here with state; it is safe for
// concurrent use and takes no lock.
//
// Words: an attempt is each send to the upstream, a retry every attempt after
// the first. Retry numbers in a [Step] count from 0, so 0 is the wait before
// the second attempt.
package policy

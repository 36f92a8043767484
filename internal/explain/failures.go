package explain

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Request has the properties of a request that matter for a retry.
type Request struct {
	Method  []byte
	HasKey  bool                  // it has or gets an Idempotency-Key
	IsRetry bool                  // a proxy before us marked it as a retry
	Layered policy.LayeredRetries // the route's rule for such requests
	Timeout time.Duration         // of the request, 0 = none
}

// Failure is a kind of failure.
type Failure struct {
	Name    string // for JSON and tables
	Text    string // what happened
	Attempt policy.Result
}

// retryAfter is the wait that the failure "429 with Retry-After" asks for.
const retryAfter = 5 * time.Second

// Failures lists the kinds of failures, starting with those that are the safest to retry.
func Failures() []Failure {
	status := func(code int) policy.Result { return policy.Result{Cause: policy.CauseStatus, Status: code} }
	return []Failure{
		{"connect_failure", "no connection: refused, timed out, name not resolved", policy.Result{Cause: policy.CauseDial}},
		{"tls_failure", "the TLS handshake failed", policy.Result{Cause: policy.CauseTLS}},
		{"untrusted_certificate", "the certificate of the upstream cannot be verified", policy.Result{Cause: policy.CauseUntrusted}},
		{"idle_close", "the upstream had closed the pooled connection", policy.Result{Cause: policy.CauseIdleClose}},
		{"status_429", "429 without Retry-After", status(429)},
		{"status_429_retry_after", "429 with Retry-After: 5", policy.Result{Cause: policy.CauseStatus, Status: 429, RetryAfter: retryAfter, HasRetryAfter: true}},
		{"status_503", "503", status(503)},
		{"status_529", "529", status(529)},
		{"status_500", "500", status(500)},
		{"status_502", "502", status(502)},
		{"status_504", "504", status(504)},
		{"reset", "the connection was reset after the request was sent", policy.Result{Cause: policy.CauseReset}},
		{"attempt_timeout", "no response within the attempt timeout", policy.Result{Cause: policy.CauseAttemptTimeout}},
		{"malformed", "a response that is not valid HTTP", policy.Result{Cause: policy.CauseMalformed}},
		{"status_501", "501, 505, 511", status(501)},
		{"status_404", "any other response, such as 200 or 404", status(404)},
		{"gave_up_before", "any response of another retryproxy that had given up", policy.Result{Cause: policy.CauseStatus, Status: 503, Final: true}},
	}
}

// Answer is what happens to the request after a failure.
type Answer struct {
	Failure
	Decision policy.Decision
	MinWait  time.Duration // before the first retry
	MaxWait  time.Duration
}

// Ask returns the answers of Policy.Decide for all failures, as failures of the first attempt, with
// enough time, budget and retry buffer. It has no rules of its own.
func Ask(p *policy.Policy, r Request) []Answer {
	var answers []Answer
	for _, f := range Failures() {
		answers = append(answers, ask(p, r, f))
	}
	return answers
}

func ask(p *policy.Policy, r Request, f Failure) Answer {
	s := policy.Situation{MaxRetries: p.MaxRetries, Safe: p.Retryable(r.Method, r.HasKey), Left: backoff.Forever}
	if r.Timeout > 0 {
		s.Left = r.Timeout
	}
	if r.IsRetry {
		s.MaxRetries = r.Layered.MaxRetries(s.MaxRetries)
		s.Layered = s.MaxRetries < 1
	}
	a := Answer{Failure: f}
	a.Decision = p.Decide(&f.Attempt, &s, nil, 0, lowest{})
	a.MinWait = a.Decision.Wait
	a.MaxWait = max(a.MinWait, p.Decide(&f.Attempt, &s, nil, 0, highest{}).Wait) // 0 if the longest wait does not fit the time
	return a
}

// lowest and highest draw the ends of each distribution. For the normal distribution, which has
// none, they draw four standard deviations.
type lowest struct{}

func (lowest) Int64N(int64) int64   { return 0 }
func (lowest) Float64() float64     { return 0 }
func (lowest) NormFloat64() float64 { return -4 }

type highest struct{}

func (highest) Int64N(n int64) int64 { return n - 1 }
func (highest) Float64() float64     { return 1 - 1e-12 }
func (highest) NormFloat64() float64 { return 4 }

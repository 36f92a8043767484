package request

import "github.com/retryproxy/retryproxy/policy"

// End is what a request came to.
type End struct {
	Status  int // that the client got; 0: none
	Outcome policy.Outcome
	Reason  string // of a refusal or a failure, for the logs; "": none
}

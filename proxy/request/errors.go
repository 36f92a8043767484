package request

import "errors"

// Errors of a client while its request is served.
var (
	ErrBodyTooLarge = errors.New("the request body is larger than allowed")
	ErrBodyTooSlow  = errors.New("the request body came slower than allowed")
	ErrBodyCut      = errors.New("the request body ended early")
	ErrStopped      = errors.New("reading was stopped")
)

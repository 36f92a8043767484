package proxy

import "errors"

// What can go wrong with a client while its request is served.
var (
	errClientGone   = errors.New("the client closed the connection")
	errBodyTooLarge = errors.New("the request body is larger than allowed")
	errBodyTooSlow  = errors.New("the request body came slower than allowed")
	errBodyCut      = errors.New("the request body ended early")
	errStopped      = errors.New("reading was stopped")
)

// errResponseCut is a response that ended before its framing said so.
var errResponseCut = errors.New("the response was cut off")

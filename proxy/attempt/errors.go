package attempt

import "errors"

// Errors of reading a response, beside those of the connection.
var (
	// ErrClientGone is what a Reader returns if the client left while its response was read.
	ErrClientGone = errors.New("the client closed the connection")
	// ErrVanished is what a Reader returns if the upstream's system does not acknowledge the request.
	ErrVanished = errors.New("the upstream acknowledges nothing")
	// ErrCut is the error of a response that ended before its framing said so.
	ErrCut = errors.New("the response was cut off")
)

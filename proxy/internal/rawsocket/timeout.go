package rawsocket

import (
	"errors"
	"os"
)

// IsTimeout reports whether err is that of a deadline that has passed.
func IsTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

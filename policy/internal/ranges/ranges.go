// Package ranges checks that settings are within their range.
package ranges

import (
	"fmt"
	"time"
)

// Check returns an error if v is set (not zero) and outside [low, high]. NaN is outside.
func Check[T time.Duration | float64 | int](name string, v, low, high T) error {
	if v == 0 || v >= low && v <= high {
		return nil
	}
	return fmt.Errorf("%s %v is not within %v to %v", name, v, low, high)
}

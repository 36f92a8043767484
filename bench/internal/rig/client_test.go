package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
)

func TestKinds(t *testing.T) {
	for want, err := range map[string]error{
		"refused": fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"reset":   syscall.EPIPE,
		"closed":  io.ErrUnexpectedEOF,
		"timeout": os.ErrDeadlineExceeded,
		"other":   errors.New("malformed"),
	} {
		if got := KindOf(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}

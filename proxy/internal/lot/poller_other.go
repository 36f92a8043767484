//go:build !linux

package lot

import (
	"errors"
	"syscall"
	"time"
)

// poller refuses to be opened, and so is never used.
type poller struct{}

func (*poller) open() error                       { return errors.ErrUnsupported }
func (*poller) add(syscall.RawConn, uint64) error { return errors.ErrUnsupported }
func (*poller) remove(syscall.RawConn)            {}
func (*poller) wait() ([]uint64, error)           { return nil, errors.ErrUnsupported }
func (*poller) setAlarm(time.Time)                {}
func (*poller) close()                            {}

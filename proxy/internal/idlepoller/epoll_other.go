//go:build !linux

package idlepoller

import (
	"errors"
	"syscall"
	"time"
)

// epoll is not available here: open fails, so the other methods are never used.
type epoll struct{}

func (*epoll) open() error                       { return errors.ErrUnsupported }
func (*epoll) add(syscall.RawConn, uint64) error { return errors.ErrUnsupported }
func (*epoll) remove(syscall.RawConn)            {}
func (*epoll) wait() ([]uint64, error)           { return nil, errors.ErrUnsupported }
func (*epoll) setWakeTime(time.Time)             {}
func (*epoll) close()                            {}

//go:build !linux

package rig

import (
	"errors"
	"os/exec"
)

func endWithParent(*exec.Cmd) {}

// ReusePort does nothing here.
func ReusePort(int) error { return nil }

// Cores is one: nothing can be pinned here.
func Cores() []int { return []int{0} }

func pinned(_ []int, start func() error) error { return start() }

func cpuOf(int) (int64, error) { return 0, errors.ErrUnsupported }

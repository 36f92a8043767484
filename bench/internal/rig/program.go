package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes of a judge.
const (
	OK     = 0 // also if only help was asked for
	Failed = 1 // it could not do its work, or it found what must not be
	Usage  = 2 // its arguments are wrong, or a program is not installed
	Missed = 3 // it did its work, and a goal was missed
)

var (
	// ErrFound makes the exit code Failed. The judge has already printed what it found.
	ErrFound = errors.New("found what must not be")
	// ErrMissed makes the exit code Missed. The judge has already printed which goal.
	ErrMissed = errors.New("a goal was missed")
)

// usageError is an error that the user can fix.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// Wrong marks err as one that the user can fix; nil stays nil.
func Wrong(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// Program is a judge. args exclude the program's name; ctx ends at the first interrupt or SIGTERM.
type Program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs p as this process, or the role for which a judge started itself again.
func Main(name string, p Program) {
	RunRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := p.Run(ctx, name, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run runs p, prints its error and returns the exit code.
func (p Program) Run(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	err := p(ctx, args, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return OK
	case errors.Is(err, ErrFound):
		return Failed
	case errors.Is(err, ErrMissed):
		return Missed
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if errors.As(err, new(usageError)) {
		return Usage
	}
	return Failed
}

// Package command is the outside of a program of bench: it ends when a signal
// asks for it, says under its name what went wrong, and exits with a code that
// tells how it went.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes.
const (
	OK     = 0 // also where only help was asked for
	Failed = 1 // it could not do its work, or found what must not be
	Usage  = 2 // its arguments are wrong, or something is not installed
	Missed = 3 // it did its work, and a goal was not reached
)

var (
	// ErrFound is for a Program that found what must not be and has said so:
	// Failed, without another word.
	ErrFound = errors.New("found what must not be")
	// ErrMissed is for one that has said which goal was not reached: Missed,
	// without another word.
	ErrMissed = errors.New("a goal was not reached")
)

// usage is an error that whoever started the program can mend.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// Wrong makes err one about the arguments, or what has to be installed; nil stays nil.
func Wrong(err error) error {
	if err == nil {
		return nil
	}
	return usage{err}
}

// Program is the inside. args are without the program's name; ctx ends by the
// first interrupt or SIGTERM. Its error may be ErrFound, ErrMissed, flag.ErrHelp, one
// of Wrong, or any other, which makes the code Failed.
type Program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs p as this process, and ends the process.
func Main(name string, p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := p.Run(ctx, name, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run runs p, says on stderr what went wrong, and gives the exit code.
func (p Program) Run(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	err := p(ctx, args, stdout, stderr)
	code := codeOf(err)
	if err != nil && code != OK && !errors.Is(err, ErrFound) && !errors.Is(err, ErrMissed) {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return code
}

func codeOf(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return OK
	case errors.Is(err, ErrMissed):
		return Missed
	case errors.As(err, new(usage)):
		return Usage
	}
	return Failed
}

// Parse parses args, of which nothing may be left over, and then asks check,
// which may be nil, whether the values can be used. What is wrong is an error of Wrong.
func Parse(f *flag.FlagSet, args []string, check func() error) error {
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err == nil && check != nil {
		err = check()
	}
	return Wrong(err)
}

// Check gathers what is wrong with the values of flags. The zero Check has found nothing.
type Check struct{ wrong []error }

// That notes what is wrong unless ok, as fmt.Sprintf writes it.
func (c *Check) That(ok bool, format string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, fmt.Errorf(format, args...))
	}
}

// Err joins all that is wrong; nil: nothing is.
func (c *Check) Err() error { return errors.Join(c.wrong...) }

// List is what stands between the commas of a flag.
func List(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

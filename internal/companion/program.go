package companion

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// The exit codes of all commands of the project.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// ErrUsage matches errors of the arguments.
var ErrUsage = errors.New("wrong arguments")

// ExitCode reports the error of a program on stderr, and returns the exit code.
func ExitCode(program string, err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return ExitOK
	case errors.Is(err, ErrUsage):
		fmt.Fprintf(stderr, "%s: %v; see %s --help\n", program, err, program)
		return ExitUsage
	}
	fmt.Fprintf(stderr, "%s: %v\n", program, err)
	return ExitFailed
}

// Parse parses flags; any further argument is an error. If help is requested, it prints it and
// returns flag.ErrHelp; any other error matches ErrUsage.
func Parse(f *flag.FlagSet, usage string, args []string, stdout io.Writer) error {
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUsage, err)
	case f.NArg() > 0:
		return fmt.Errorf("%w: unexpected argument %q", ErrUsage, f.Arg(0))
	}
	return nil
}

// Package companion is about commands of the project that are separate programs, so that the
// sidecar does not contain what only they need: how retryproxy finds them, and their frame.
package companion

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Find returns the path of the command: in the directory of this executable, or else in PATH. The
// error is that of exec.LookPath.
func Find(command string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(self), command)); err == nil {
			return found, nil
		}
	}
	return exec.LookPath(command)
}

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

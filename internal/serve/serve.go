package serve

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/buildinfo"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/logwriter"
	"github.com/retryproxy/retryproxy/internal/memlimit"
)

// Options is the environment of a process, apart from files and sockets.
type Options struct {
	Env    []string // as os.Environ
	Getenv func(string) string
	Log    *logwriter.Writer // what it writes; the caller closes it
	Build  buildinfo.Build
	// Signals starts listening for SIGTERM, SIGINT and SIGHUP. If it is nil, only the
	// context ends the process.
	Signals func() (signals <-chan os.Signal, stop func())
}

// ErrReported matches errors that the log already contains.
var ErrReported = errors.New("reported already")

var errForce = errors.New("ended by a signal") // by a second one

// isEnd reports whether a signal ends the process.
func isEnd(s os.Signal) bool { return s == syscall.SIGTERM || s == syscall.SIGINT }

// Run serves until ctx ends or a signal arrives, then drains. If the settings are invalid,
// the error matches config.ErrInvalid, and config.ProblemsOf returns the problems.
func Run(ctx context.Context, o Options) error {
	s, problems := Check(o.Env, o.Getenv)
	if err := problems.Err(); err != nil {
		return err
	}
	memory := memlimit.Apply(o.Getenv("GOMEMLIMIT"))
	a, err := newApp(&o, s, problems)
	if err != nil {
		return errors.Join(config.ErrInvalid, err)
	}
	// net/http's HTTP/2 client writes what upstreams do wrong to the standard logger, which blocks
	// on a stalled reader of stderr.
	restore, err := zap.RedirectStdLogAt(a.log, zap.WarnLevel)
	if err != nil {
		return err
	}
	defer restore()
	var signals <-chan os.Signal
	if o.Signals != nil {
		var stop func()
		signals, stop = o.Signals()
		defer stop()
	}
	return a.run(ctx, signals, memory)
}

// Check reads the settings and the files that they name as Run does, and opens no listener.
func Check(env []string, getenv func(string) string) (*config.Settings, config.Problems) {
	s, problems := config.Load(env)
	problems = append(problems, traceProblems(getenv)...)
	return s, append(problems, fileProblems(s, problems)...)
}

// fileProblems returns the problems of files that the settings name, except for those of a variable that
// has an error already.
func fileProblems(s *config.Settings, known config.Problems) (more config.Problems) {
	_, err := config.Build(s)
	all := config.ProblemsOf(err)
	if _, err := newFleet(s, zap.NewNop()); err != nil {
		all = append(all, config.Problem{Variable: config.Prefix + "SHARED", Message: err.Error()})
	}
	for _, p := range all {
		if !slices.ContainsFunc(known.Errors(), func(k config.Problem) bool { return k.Variable == p.Variable }) {
			more = append(more, p)
		}
	}
	return more
}

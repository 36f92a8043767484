package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Exit codes of a judge.
const (
	OK     = 0 // also after --help
	Failed = 1 // the check failed, or it found violations
	Usage  = 2 // wrong arguments, or a program is not installed
	Missed = 3 // a goal was missed
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

// Main runs p, or the role of this process.
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

// Flags are the flags of a judge with checks of their values.
type Flags struct {
	*flag.FlagSet
	checks []func(*Check)
}

// NewFlags returns flags with --proxy.
func NewFlags(name string, stderr io.Writer, proxy *string) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	f.SetOutput(stderr)
	f.StringVar(proxy, "proxy", "bin/retryproxy", "the program retryproxy")
	return f
}

// Number adds a flag with a value from least to most.
func Number[T int | float64 | time.Duration](f *Flags, p *T, name string, value, least, most T, about string) {
	switch p := any(p).(type) {
	case *int:
		f.IntVar(p, name, any(value).(int), about)
	case *float64:
		f.Float64Var(p, name, any(value).(float64), about)
	case *time.Duration:
		f.DurationVar(p, name, any(value).(time.Duration), about)
	}
	f.Check(func(c *Check) { c.That(*p >= least && *p <= most, "--%s must be from %v to %v", name, least, most) })
}

// Seed adds --seed. A seed of 0 becomes a random one.
func (f *Flags) Seed(p *uint64, value uint64) {
	f.Uint64Var(p, "seed", value, "seed of all that is drawn; 0: a random one")
	f.Check(func(*Check) {
		for *p == 0 {
			*p = rand.Uint64() >> 32
		}
	})
}

// Some adds a flag with a comma-separated list of names.
func (f *Flags) Some(p *[]string, name, value string, of []string, about string) {
	text := f.String(name, value, about+", some of "+strings.Join(of, ","))
	f.Check(func(c *Check) {
		if *text == "" {
			return
		}
		*p = strings.Split(*text, ",")
		for _, s := range *p {
			c.That(slices.Contains(of, s), "--%s: %q is none of %s", name, s, strings.Join(of, ", "))
		}
	})
}

// One adds a flag with one name.
func (f *Flags) One(p *string, name, value string, of []string, about string) {
	f.StringVar(p, name, value, about+": "+strings.Join(of, " or "))
	f.Check(func(c *Check) {
		c.That(slices.Contains(of, *p), "--%s: %q is none of %s", name, *p, strings.Join(of, ", "))
	})
}

// Settings adds --set, for settings of the proxy. With the setting broken, the judge fails.
func (f *Flags) Settings(p *[]string, broken string) {
	f.Func("set", "NAME=VALUE for retryproxy, also several times; to see a promise broken, say "+broken, func(v string) error {
		*p = append(*p, v)
		return nil
	})
}

// Check adds a check of the values. Checks run in the order in which they were added.
func (f *Flags) Check(check func(*Check)) { f.checks = append(f.checks, check) }

// Parse parses the arguments and runs the checks. Positional arguments are an error.
func (f *Flags) Parse(args []string) error {
	err := f.FlagSet.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err != nil {
		return Wrong(err)
	}
	var c Check
	for _, check := range f.checks {
		check(&c)
	}
	return Wrong(c.Err())
}

// Check collects failed checks. The zero value is ready for use.
type Check struct{ wrong []string }

// That adds a text, formatted as by fmt.Sprintf, unless ok.
func (c *Check) That(ok bool, format string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// Installed checks that programs are installed.
func (c *Check) Installed(programs ...string) {
	for _, p := range programs {
		_, err := exec.LookPath(p)
		c.That(err == nil, "%s is not installed", p)
	}
}

// All returns the texts.
func (c *Check) All() []string { return c.wrong }

// Err returns the texts as an error; nil if there are none.
func (c *Check) Err() error {
	if len(c.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(c.wrong, "\n"))
}

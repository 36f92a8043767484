package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/serve"
	"github.com/retryproxy/retryproxy/internal/text"
)

// outside is what a command may use of its environment, apart from files and sockets.
type outside struct {
	args           []string
	env            []string // as os.Environ
	stdout, stderr io.Writer
	// signals starts to receive SIGTERM, SIGINT and SIGHUP. It is nil in tests, which end a
	// command through its context.
	signals func() (signals <-chan os.Signal, stop func())
	// become replaces this process with another program. It is nil in tests and for the manual page.
	become func(program string, args, env []string) error
	// ignorePipe keeps a write to a pipe without a reader from ending the process. It is nil in tests.
	ignorePipe func()
}

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it ran and failed; not healthy
	exitUsage  = 2 // it did not run: wrong arguments or settings
)

// An error of a command that matches one of these was already reported or has its own exit code.
// Every other error is printed and means exitFailed.
var (
	errUsage    = errors.New("usage") // printed by the command, or by flag
	errReported = serve.ErrReported   // the command printed why, or the log has it
	errHelp     = flag.ErrHelp        // help was requested and printed
)

// exitCode returns the exit code of an error. Nothing else chooses one.
func exitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, errHelp):
		return exitOK
	case errors.Is(err, errUsage), errors.Is(err, config.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

// command is a subcommand.
type command struct {
	name    string
	args    string // of the usage line
	summary string
	details string // paragraphs of the help text
	run     func(ctx context.Context, c *call) error
}

// call is one invocation of a command.
type call struct {
	*outside
	command *command
	args    []string // after the command's name
	all     []command
}

// commands returns the commands in the order of the help text. It is a function because help uses
// it.
func commands() []command {
	return []command{
		serveCommand, checkCommand, explainCommand, healthCommand, drainCommand, demoCommand, versionCommand, manCommand,
	}
}

// run runs the command that the arguments name and returns the exit code.
func run(ctx context.Context, o *outside) int {
	out := &text.Checked{Writer: o.stdout}
	own := *o
	own.stdout = out
	err := dispatch(ctx, &own)
	if err == nil {
		err = out.Err
	}
	return exitCode(o.report(err))
}

// report prints an error that was not printed yet, and returns it as a reported one.
func (o *outside) report(err error) error {
	if err == nil || errors.Is(err, errReported) || errors.Is(err, errUsage) || errors.Is(err, errHelp) {
		return err
	}
	fmt.Fprintln(o.stderr, "retryproxy:", err)
	return fmt.Errorf("%w %w", errReported, err)
}

func dispatch(ctx context.Context, o *outside) error {
	name, args := "serve", o.args
	if len(args) > 0 && (!strings.HasPrefix(args[0], "-") || isHelp(args[0]) || isVersion(args[0])) {
		name, args = args[0], args[1:]
	}
	switch {
	case isHelp(name):
		return help(o, args)
	case isVersion(name):
		name = "version"
	}
	c := find(name)
	if c == nil {
		return o.unknown(name)
	}
	return c.run(ctx, &call{outside: o, command: c, args: args, all: commands()})
}

func isHelp(arg string) bool {
	return arg == "help" || arg == "-h" || arg == "-help" || arg == "--help"
}

func isVersion(arg string) bool { return arg == "-version" || arg == "--version" }

func find(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return &c
		}
	}
	return nil
}

// help prints the list of commands, or the text of one.
func help(o *outside, args []string) error {
	if len(args) == 0 {
		overview(o.stdout)
		return nil
	}
	c := find(args[0])
	if c == nil {
		return o.unknown(args[0])
	}
	return c.run(context.Background(), &call{outside: o, command: c, args: []string{"-h"}, all: commands()})
}

func overview(w io.Writer) {
	fmt.Fprint(w, "retryproxy forwards HTTP requests to an upstream and retries what is safe and worth retrying.\n\n"+
		"Usage: retryproxy [command]\n\nCommands:\n")
	t := text.NewTable(w)
	for _, c := range commands() {
		t.Row("  "+c.name, c.summary)
	}
	t.Flush()
	fmt.Fprint(w, "\nOnly the upstream must be set:\n\n"+
		"  RETRYPROXY_UPSTREAM=http://localhost:3000 retryproxy\n\n"+
		"retryproxy help COMMAND describes one. The settings are in docs/reference/settings.md.\n"+
		"retryproxyctl, another program, plans and simulates retries and puts retryproxy into Pods.\n"+
		"Exit codes: 0 done, 1 failed or not healthy, 2 wrong arguments or settings.\n")
}

// flags returns the command's flag set.
func (c *call) flags() *flag.FlagSet {
	f := flag.NewFlagSet(c.command.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

// parse parses flags before and after other arguments, of which there may be at most max. If help
// is requested, it prints it and returns errHelp.
func (c *call) parse(f *flag.FlagSet, max int) (rest []string, err error) {
	args := c.args
	for {
		if err := f.Parse(args); err != nil {
			return nil, c.usage(f, c.explained(f, args, twoDashes(withUnit(f, err))))
		}
		if f.NArg() == 0 {
			break
		}
		rest, args = append(rest, f.Arg(0)), f.Args()[1:]
	}
	if len(rest) > max {
		err := fmt.Errorf("unexpected argument %q", config.Mask(rest[max]))
		if meant := meantByArgument(rest[max], c.command.name); meant != "" {
			err = fmt.Errorf("%w; %s", err, meant)
		}
		return nil, c.usage(f, err)
	}
	return rest, nil
}

// explained adds to an error about a flag that the command does not have what may have been meant.
func (c *call) explained(f *flag.FlagSet, args []string, err error) error {
	_, name, unknown := strings.Cut(err.Error(), "not defined: ")
	if !unknown {
		return err
	}
	var names []string
	f.VisitAll(func(one *flag.Flag) { names = append(names, one.Name) })
	hint := meantByFlag(args, name, c.command.name)
	if near := config.Nearest(strings.TrimLeft(name, "-"), slices.Values(names)); near != "" && len(near) > 1 {
		hint = "did you mean --" + near + "?"
	}
	return errors.New(strings.TrimSuffix("there is no flag "+name+"; "+hint, "; "))
}

// withUnit adds to an error of a duration, such as 10, what was expected.
func withUnit(f *flag.FlagSet, err error) error {
	_, after, _ := strings.Cut(err.Error(), " for flag -")
	name, _, _ := strings.Cut(after, ":")
	if given := f.Lookup(name); given != nil {
		if getter, is := given.Value.(flag.Getter); is {
			if _, is := getter.Get().(time.Duration); is {
				return fmt.Errorf("--%s: expected a duration such as 10s", name)
			}
		}
	}
	return err
}

// oneDash matches the name of a flag in an error of package flag.
var oneDash = regexp.MustCompile(`(flag|for|not defined:|argument:) -([a-z][a-z-]+)`)

// twoDashes writes the name of a flag in an error as the help does.
func twoDashes(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return errors.New(oneDash.ReplaceAllString(err.Error(), "$1 --$2"))
}

// printFlags writes a flag in a row, with its default.
func printFlags(w io.Writer, f *flag.FlagSet) {
	t := text.NewTable(w)
	f.VisitAll(func(one *flag.Flag) {
		value, usage := flag.UnquoteUsage(one)
		name := "--" + one.Name
		if len(one.Name) == 1 {
			name = "-" + one.Name
		}
		if !slices.Contains([]string{"", "0", "0s", "false"}, one.DefValue) {
			usage += " (default " + one.DefValue + ")"
		}
		t.Row("  "+strings.TrimSpace(name+" "+value), usage)
	})
	t.Flush()
}

// usage prints the command's usage to standard output if that was requested, otherwise the error
// to standard error.
func (c *call) usage(f *flag.FlagSet, err error) error {
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(c.stderr, "retryproxy %s: %v\n%s\n", c.command.name, err, c.usageLine())
		return errUsage
	}
	fmt.Fprintf(c.stdout, "%s\n\n%s\n", c.usageLine(), c.command.details)
	any := false
	f.VisitAll(func(*flag.Flag) { any = true })
	if any {
		fmt.Fprint(c.stdout, "\nFlags:\n")
		printFlags(c.stdout, f)
	}
	return errHelp
}

func (c *call) usageLine() string {
	return strings.TrimSpace("Usage: retryproxy " + c.command.name + " " + c.command.args)
}

// settings returns the settings of the environment, or an error after it has printed what is wrong.
func (c *call) settings() (*config.Settings, error) {
	s, problems := config.Load(c.env)
	if problems.Err() != nil {
		return nil, c.invalid(problems)
	}
	return s, nil
}

// invalid prints the problems of the settings, and returns an error that says so.
func (c *call) invalid(problems config.Problems) error {
	text.Problems(c.stderr, text.PaintFor(c.stderr, config.Getenv(c.env)), problems)
	return fmt.Errorf("%w %w", errReported, config.ErrInvalid)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retryproxy/retryproxy/internal/buildinfo"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/text"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// revision is set in the same way by builds without a repository, such as the image's; otherwise
// the Go tool sets it.
var revision string

func build() buildinfo.Build { return buildinfo.Of(version, revision) }

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it ran and failed
	exitUsage  = 2 // it did not run: wrong arguments or settings
)

// An error of a command that matches errUsage or errReported was already printed. Every other error is
// printed and means exitFailed.
var (
	errUsage    = errors.New("usage")
	errReported = errors.New("reported")
)

// exitCode returns the exit code of an error. Nothing else chooses one.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage), errors.Is(err, config.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

// run runs the command that the arguments name and returns the exit code.
func run(ctx context.Context, o *outside) int {
	out := &text.Checked{Writer: o.stdout}
	own := *o
	own.stdout = out
	err := own.root().ExecuteContext(ctx)
	if err == nil {
		err = out.Err
	}
	if err != nil && !errors.Is(err, errUsage) && !errors.Is(err, errReported) {
		fmt.Fprintln(o.stderr, "retryproxyctl:", err)
	}
	return exitCode(err)
}

// more are the commands that a build with the tag small leaves out: the webhook's image draws nothing.
var more []func(*outside) *cobra.Command

// root returns the tree of commands. It executes the arguments of o.
func (o *outside) root() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "retryproxyctl [command]",
		Short: "plan and simulate retries, and put retryproxy into Kubernetes Pods",
		Long: `retryproxyctl plans, simulates and draws retries, proposes settings from the traffic of
a running retryproxy, and puts retryproxy into Kubernetes Pods. It forwards nothing
itself; retryproxy does.`,
		Version:       build().Line("retryproxyctl"),
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(c, args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetArgs(o.args)
	root.SetIn(o.stdin)
	root.SetOut(o.stdout)
	root.SetErr(o.stderr)
	root.SetHelpFunc(help)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return wrong(c, meantByFlag(c, plainly(err))) })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(planCommand(o), simulateCommand(o))
	for _, command := range more {
		root.AddCommand(command(o))
	}
	root.AddCommand(adviseCommand(o), injectCommand(o), webhookCommand(o), convertCommand(o),
		completionCommand(o), manCommand(o), versionCommand(o), helpCommand())
	root.SetHelpCommand(root.Commands()[slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "help" })])
	for _, c := range root.Commands() {
		c.DisableFlagsInUseLine = true
		c.Flags().SortFlags = false
		if c.Args == nil {
			c.Args = atMost(0)
		}
	}
	return root
}

// atMost accepts up to n arguments that are not flags.
func atMost(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return wrong(c, fmt.Errorf("unexpected argument %q%s", config.Mask(args[n]), meantByArgument(c, args[n])))
		}
		return nil
	}
}

// meantByArgument returns which flag may have been meant by an argument that the command does not take, or
// "".
func meantByArgument(c *cobra.Command, arg string) string {
	switch {
	case c.Name() == "plot":
		return "; did you mean <" + arg + "?"
	case c.Name() == "convert":
		return "; did you mean RETRYPROXY_CONFIG_FILE=" + arg + " retryproxyctl convert?"
	case c.Flags().Lookup("file") != nil:
		return "; did you mean -f " + arg + "?"
	case c.Flags().Lookup("address") != nil && config.SuggestAddressFlag(arg) != "":
		return "; " + config.SuggestAddressFlag(arg)
	}
	return ""
}

// ofTheProxy are the commands of retryproxy that people look for here.
var ofTheProxy = []string{"serve", "check", "explain", "health", "drain", "demo"}

// unknown reports a command that there is not.
func unknown(root *cobra.Command, name string) error {
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	hint := "see retryproxyctl help"
	if slices.Contains(ofTheProxy, name) {
		hint = "this is a command of retryproxy: retryproxy " + name
	} else if meant := config.Nearest(name, slices.Values(names)); meant != "" {
		hint = "did you mean " + meant + "?"
	}
	fmt.Fprintf(root.ErrOrStderr(), "retryproxyctl: unknown command %q; %s\n", name, hint)
	return errUsage
}

// wrong prints errors of the arguments, one per line, and the usage line.
func wrong(c *cobra.Command, err error) error {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), line)
	}
	fmt.Fprintf(c.ErrOrStderr(), "Usage: %s\n", c.UseLine())
	return errUsage
}

// plainly words an error of pflag without the names of Go's functions.
func plainly(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	name := "--" + invalid.GetFlag().Name
	switch invalid.GetFlag().Value.Type() {
	case "duration":
		return fmt.Errorf("%s: expected a duration such as 10s", name)
	case "int", "uint64":
		return fmt.Errorf("%s %q: expected a number", name, invalid.GetValue())
	case "bool":
		return fmt.Errorf("%s %q: expected true or false", name, invalid.GetValue())
	}
	return fmt.Errorf("%s: %w", name, invalid.Unwrap()) // without the value: a URL may have a password
}

// meantByFlag adds to the error about a flag that the command does not have the one whose name is near, or ends
// with its name.
func meantByFlag(c *cobra.Command, err error) error {
	_, name, unknown := strings.Cut(err.Error(), "unknown flag: --")
	if !unknown {
		return err
	}
	var names []string
	longer := ""
	c.Flags().VisitAll(func(f *pflag.Flag) {
		names = append(names, f.Name)
		if longer == "" && strings.HasSuffix(f.Name, "-"+name) {
			longer = f.Name
		}
	})
	if meant := cmp.Or(config.Nearest(name, slices.Values(names)), longer); meant != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, meant)
	}
	return err
}

// helpWidth is the number of columns of the flags' descriptions, like that of the other texts.
const helpWidth = 96

// help prints the help of a command.
func help(c *cobra.Command, _ []string) {
	w := c.OutOrStdout()
	said := c.Long
	if said == "" {
		said = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	if !c.HasParent() {
		overview(c, w, said)
		return
	}
	fmt.Fprintf(w, "Usage: %s\n\n%s\n", c.UseLine(), said)
	if own := c.Flags().Lookup("help"); own != nil {
		own.Hidden = true
	}
	if flags := c.LocalFlags().FlagUsagesWrapped(helpWidth); flags != "" {
		fmt.Fprintf(w, "\nFlags:\n%s", flags)
	}
}

func overview(root *cobra.Command, w io.Writer, said string) {
	fmt.Fprintf(w, "%s\n\nUsage: %s\n\nCommands:\n", said, root.UseLine())
	t := text.NewTable(w)
	for _, c := range root.Commands() {
		if !c.Hidden {
			t.Row("  "+c.Name(), c.Short)
		}
	}
	t.Flush()
	fmt.Fprint(w, "\nretryproxyctl help COMMAND describes one.\n"+
		"Exit codes: 0 done, 1 failed, 2 wrong arguments or settings.\n")
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "show the help of a command", Args: atMost(1),
		ValidArgsFunction: func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, other := range c.Root().Commands() {
				names = append(names, other.Name())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			found, _, err := c.Root().Find(args)
			if err != nil || len(args) > 0 && found == c.Root() {
				return unknown(c.Root(), args[0])
			}
			return found.Help()
		},
	}
}

func versionCommand(o *outside) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version",
		Long: "Prints the version, the commit it was built from, and the Go version.",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(o.stdout, build().Line("retryproxyctl"))
			return err
		},
	}
}

// complete offers the values of a flag to the shell.
func complete(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that there is not
}

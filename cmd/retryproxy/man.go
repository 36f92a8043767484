package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/roff"
)

var manCommand = command{
	name:    "man",
	summary: "print the manual page",
	details: `Prints the manual page, made from the same texts as help and docs/reference/settings.md:

  retryproxy man | man -l -`,
	run: runMan,
}

func runMan(ctx context.Context, c *call) error {
	if _, err := c.parse(c.flags(), 0); err != nil {
		return err
	}
	manPage(ctx, c.stdout, c.all)
	return nil
}

// manPage writes roff with the man macros (groff_man(7)).
func manPage(ctx context.Context, w io.Writer, commands []command) {
	fmt.Fprintf(w, ".TH RETRYPROXY 1 \"\" %s\n", roff.Arg("retryproxy "+build().Version))
	fmt.Fprint(w, ".SH NAME\nretryproxy \\- reverse proxy that retries what is safe and worth retrying\n")
	fmt.Fprint(w, ".SH SYNOPSIS\n.B retryproxy\n[command] [flags]\n.SH COMMANDS\n")
	for _, c := range commands {
		fmt.Fprintf(w, ".SS %s\n%s.\n.PP\n.EX\n", roff.Arg(c.name), roff.Escape(strings.ToUpper(c.summary[:1])+c.summary[1:]))
		fmt.Fprintf(w, "%s\n.EE\n", roff.Escape(strings.TrimSpace(helpText(ctx, &c))))
	}
	manSettings(w)
	fmt.Fprint(w, ".SH SIGNALS\nSIGTERM, SIGINT: shut down gracefully; a second signal ends the process at once. SIGHUP: read the configuration file and the certificates again.\n"+
		".SH EXIT STATUS\n0 done, 1 failed or not healthy, 2 wrong arguments or settings.\n")
}

func manSettings(w io.Writer) {
	fmt.Fprint(w, ".SH ENVIRONMENT\n")
	group := ""
	for _, s := range config.Reference() {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(w, ".SS %s\n", roff.Arg(group))
		}
		fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff.Escape(s.Variable()), roff.Escape(s.Description()))
	}
}

// helpText returns the help of a command.
func helpText(ctx context.Context, c *command) string {
	var said strings.Builder
	_ = c.run(ctx, &call{outside: &outside{stdout: &said, stderr: io.Discard}, command: c, args: []string{"-h"}}) // errHelp
	return said.String()
}

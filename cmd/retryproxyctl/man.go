package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retryproxy/retryproxy/internal/roff"
)

func manCommand(o *outside) *cobra.Command {
	return &cobra.Command{
		Use: "man", Short: "print the manual page",
		Long: `Prints the manual page, made from the same texts as help:

  retryproxyctl man | man -l -`,
		RunE: func(c *cobra.Command, _ []string) error {
			manPage(o.stdout, c.Root())
			return nil
		},
	}
}

// manPage writes roff with the man macros (groff_man(7)).
func manPage(w io.Writer, root *cobra.Command) {
	fmt.Fprintf(w, ".TH RETRYPROXYCTL 1 \"\" %s\n", roff.Arg("retryproxyctl "+build().Version))
	fmt.Fprintf(w, ".SH NAME\nretryproxyctl \\- %s\n", roff.Escape(root.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B retryproxyctl\n[command] [flags]\n.SH DESCRIPTION\n%s\n.SH COMMANDS\n", roff.Escape(root.Long))
	for _, c := range root.Commands() {
		var said bytes.Buffer
		c.SetOut(&said)
		help(c, nil)
		fmt.Fprintf(w, ".SS %s\n%s.\n.PP\n.EX\n%s\n.EE\n", roff.Arg(c.Name()),
			roff.Escape(strings.ToUpper(c.Short[:1])+c.Short[1:]), roff.Escape(strings.TrimSpace(said.String())))
	}
	fmt.Fprint(w, ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong arguments or settings.\n.SH SEE ALSO\n.BR retryproxy (1)\n")
}

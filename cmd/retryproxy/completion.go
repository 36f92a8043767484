package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
)

var completionCommand = command{
	name:    "completion",
	args:    "bash|zsh|fish",
	summary: "print what completes commands and flags in a shell",
	details: `Prints a script for the shell named:

  source <(retryproxy completion bash)
  source <(retryproxy completion zsh)
  retryproxy completion fish | source`,
	run: runCompletion,
}

func runCompletion(ctx context.Context, c *call) error {
	f := c.flags()
	rest, err := c.parse(f, 1)
	if err != nil {
		return err
	}
	scripts := map[string]func(io.Writer, []completed){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}
	if len(rest) == 0 || scripts[rest[0]] == nil {
		return c.usage(f, fmt.Errorf("expected bash, zsh or fish"))
	}
	scripts[rest[0]](c.stdout, completions(ctx, c.all))
	return nil
}

// completed is a command as a shell sees it.
type completed struct {
	name, summary string
	flags         []string // with their dashes
}

// completions asks every command that people see for its flags.
func completions(ctx context.Context, commands []command) []completed {
	var all []completed
	for _, c := range commands {
		if !c.hidden {
			all = append(all, completed{c.name, c.summary, flagNames(helpText(ctx, &c))})
		}
	}
	return append(all, completed{"help", "tell more about a command", nil})
}

// helpText is what a command says of itself.
func helpText(ctx context.Context, c *command) string {
	var said strings.Builder
	_ = c.run(ctx, &call{outside: &outside{stdout: &said, stderr: io.Discard}, command: c, args: []string{"-h"}}) // errHelp
	return said.String()
}

// flagLine is a line of flag.PrintDefaults that begins a flag.
var flagLine = regexp.MustCompile(`(?m)^  -([A-Za-z0-9-]+)`)

func flagNames(help string) []string {
	_, flags, _ := strings.Cut(help, "\nFlags:\n")
	var names []string
	for _, m := range flagLine.FindAllStringSubmatch(flags, -1) {
		dashes := "--"
		if len(m[1]) == 1 {
			dashes = "-"
		}
		names = append(names, dashes+m[1])
	}
	return names
}

func names(all []completed) string {
	var list []string
	for _, c := range all {
		list = append(list, c.name)
	}
	return strings.Join(list, " ")
}

func completeBash(w io.Writer, all []completed) {
	fmt.Fprint(w, `_retryproxy() {
  local cur=${COMP_WORDS[COMP_CWORD]} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='`+names(all)+`'
  else
    case ${COMP_WORDS[1]} in
`)
	for _, c := range all {
		if len(c.flags) > 0 {
			fmt.Fprintf(w, "      %s) words='%s' ;;\n", c.name, strings.Join(c.flags, " "))
		}
	}
	fmt.Fprintf(w, "      help) words='%s' ;;\n", names(all))
	fmt.Fprint(w, `    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _retryproxy retryproxy
`)
}

func completeZsh(w io.Writer, all []completed) {
	fmt.Fprint(w, "#compdef retryproxy\n_retryproxy() {\n  local -a commands=(\n")
	for _, c := range all {
		fmt.Fprintf(w, "    %s\n", quoted(c.name+":"+strings.ReplaceAll(c.summary, ":", `\:`)))
	}
	fmt.Fprint(w, "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  case $words[2] in\n")
	for _, c := range all {
		if len(c.flags) > 0 {
			fmt.Fprintf(w, "    %s) compadd -- %s ;;\n", c.name, strings.Join(c.flags, " "))
		}
	}
	fmt.Fprint(w, "    help) _describe command commands ;;\n  esac\n  _files\n}\ncompdef _retryproxy retryproxy\n")
}

func completeFish(w io.Writer, all []completed) {
	for _, c := range all {
		fmt.Fprintf(w, "complete -c retryproxy -n __fish_use_subcommand -f -a %s -d %s\n", c.name, quoted(c.summary))
		for _, f := range c.flags {
			kind := "-l"
			if !strings.HasPrefix(f, "--") {
				kind = "-s"
			}
			fmt.Fprintf(w, "complete -c retryproxy -n '__fish_seen_subcommand_from %s' %s %s\n", c.name, kind, strings.TrimLeft(f, "-"))
		}
	}
}

// quoted is s as one word of any of the shells.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

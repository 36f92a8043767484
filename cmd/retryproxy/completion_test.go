package main

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
)

func said(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(context.Background(), &outside{args: args, stdout: &out, stderr: &errs}); code != exitOK {
		t.Fatalf("%v: exit code %d, %s", args, code, errs.String())
	}
	return out.String()
}

// A real shell completes with the script: every command that help lists, and a
// command's own flags.
func TestBashCompletes(t *testing.T) {
	script := said(t, "completion", "bash")
	complete := func(words ...string) []string {
		t.Helper()
		line := script + "\nCOMP_WORDS=(retryproxy \"$@\"); COMP_CWORD=$#; _retryproxy; printf '%s\\n' \"${COMPREPLY[@]}\""
		out, err := exec.Command("bash", append([]string{"-c", line, "bash"}, words...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Fields(string(out))
	}
	got := " " + strings.Join(complete(""), " ") + " "
	for _, c := range commands() {
		if strings.Contains(got, " "+c.name+" ") == c.hidden {
			t.Errorf("%s (hidden: %v) among %s", c.name, c.hidden, got)
		}
	}
	if got := strings.Join(complete("check", "--a"), " "); got != "--all" {
		t.Errorf("check --a: %s", got)
	}
	if got := strings.Join(complete("help", "dr"), " "); got != "drain" {
		t.Errorf("help dr: %s", got)
	}
}

func TestEveryShellKnowsEveryCommandAndFlag(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := said(t, "completion", shell)
		for _, c := range commands() {
			if !c.hidden && !strings.Contains(script, c.name) {
				t.Errorf("%s: no %s", shell, c.name)
			}
		}
		if !strings.Contains(script, "timeout") || strings.Contains(script, "  -timeout") {
			t.Errorf("%s: flags are missing or not cut out of the help:\n%s", shell, script)
		}
	}
}

func TestCompletionOfAnUnknownShell(t *testing.T) {
	var errs bytes.Buffer
	code := run(context.Background(), &outside{args: []string{"completion", "tcsh"}, stdout: &errs, stderr: &errs})
	if code != exitUsage || !strings.Contains(errs.String(), "expected bash, zsh or fish") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

// The page has every setting and command, and nothing that roff would take for
// a request where text stands.
func TestManPage(t *testing.T) {
	page := said(t, "man")
	for _, s := range config.Reference() {
		if !strings.Contains(page, "\n.B "+roff(s.Variable())+"\n") {
			t.Errorf("no %s", s.Variable())
		}
	}
	for _, c := range commands() {
		if strings.Contains(page, "\n.SS "+macroArg(c.name)+"\n") == c.hidden {
			t.Errorf("%s (hidden: %v)", c.name, c.hidden)
		}
	}
	for line := range strings.SplitSeq(page, "\n") {
		request, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, ".") && !strings.Contains(" .TH .SH .SS .B .PP .EX .EE .TP ", " "+request+" ") || strings.HasPrefix(line, "'") {
			t.Errorf("request %q", line)
		}
	}
	if got := roff("a-b\n.c\n'd\\"); got != "a\\-b\n\\&.c\n\\&'d\\e" {
		t.Errorf("roff: %q", got)
	}
}

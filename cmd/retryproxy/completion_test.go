package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// flagsOf returns the flags that the help of a command lists, without dashes.
func flagsOf(t *testing.T, name string) (flags []string) {
	t.Helper()
	_, list, _ := strings.Cut(said(t, "help", name), "\nFlags:\n")
	for _, m := range regexp.MustCompile(`(?m)^  --?(\S+)`).FindAllStringSubmatch(list, -1) {
		flags = append(flags, m[1])
	}
	return flags
}

// The programs of the shells are written by hand, so that the sidecar need not contain what writes them.
func TestEveryShellCompletesEveryCommandAndFlag(t *testing.T) {
	const directory = "../../deploy/completion/"
	for shell, form := range map[string]struct{ command, flag, letter string }{
		"bash": {`compgen -W "[^"]*\bNAME\b`, `(?m)^  COMMAND\) flags="[^"]*--NAME\b`, `(?m)^  COMMAND\) flags="[^"]*-NAME\b`},
		"zsh":  {`(?m)^    'NAME:`, `(?s)\n  COMMAND\).*?'--NAME\[.*?;;`, `(?s)\n  COMMAND\).*?-NAME\[.*?;;`},
		"fish": {`(?m)-n __fish_use_subcommand -a NAME -d`, `(?m)seen_subcommand_from [a-z ]*\bCOMMAND\b.*-l NAME `, `(?m)seen_subcommand_from [a-z ]*\bCOMMAND\b.*-s NAME `},
	} {
		script, err := os.ReadFile(directory + "retryproxy." + shell)
		if err != nil {
			t.Fatal(err)
		}
		has := func(pattern, command, name string) bool {
			return regexp.MustCompile(strings.NewReplacer("COMMAND", command, "NAME", name).Replace(pattern)).Match(script)
		}
		for _, c := range commands() {
			if !has(form.command, "", c.name) {
				t.Errorf("%s does not complete %s", shell, c.name)
			}
			for _, flag := range flagsOf(t, c.name) {
				pattern := form.flag
				if len(flag) == 1 {
					pattern = form.letter
				}
				if !has(pattern, c.name, flag) {
					t.Errorf("%s does not complete %s --%s", shell, c.name, flag)
				}
			}
		}
	}
	if len(flagsOf(t, "explain")) < 5 {
		t.Error("the flags of explain are not found")
	}
}

func TestBashCompletes(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	for line, want := range map[string][]string{
		"retryproxy he":               {"health", "help"},
		"retryproxy help dr":          {"drain"},
		"retryproxy explain GET / --": {"--json", "--listen", "--model", "--proxied", "--help"},
		"retryproxy serve --":         {"--help"},
		"retryproxy check ":           nil,
	} {
		words := strings.Split(line, " ")
		script := `. ../../deploy/completion/retryproxy.bash; COMP_CWORD=$(($# - 1)); COMP_WORDS=("$@"); _retryproxy; printf '%s\n' "${COMPREPLY[@]}"`
		out, err := exec.Command("bash", append([]string{"-euc", script, "bash"}, words...)...).CombinedOutput()
		if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}

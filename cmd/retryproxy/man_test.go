package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/roff"
)

func said(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(context.Background(), &outside{args: args, stdout: &out, stderr: &errs}); code != exitOK {
		t.Fatalf("%v: exit code %d, %s", args, code, errs.String())
	}
	return out.String()
}

func TestManPage(t *testing.T) {
	page := said(t, "man")
	for _, s := range config.Reference() {
		if !strings.Contains(page, "\n.B "+roff.Escape(s.Variable())+"\n") {
			t.Errorf("no %s", s.Variable())
		}
	}
	for _, c := range commands() {
		if !strings.Contains(page, "\n.SS "+roff.Arg(c.name)+"\n") {
			t.Errorf("no %s", c.name)
		}
	}
	for line := range strings.SplitSeq(page, "\n") {
		request, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, ".") && !strings.Contains(" .TH .SH .SS .B .PP .EX .EE .TP ", " "+request+" ") || strings.HasPrefix(line, "'") {
			t.Errorf("request %q", line)
		}
	}
}

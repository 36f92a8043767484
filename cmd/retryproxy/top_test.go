package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/admin/page"
)

// topOf runs the command against p.
func topOf(p *process, flags ...string) (string, string, int) {
	var out, errs bytes.Buffer
	code := run(context.Background(), &outside{args: append([]string{"top", "--address", p.admin}, flags...), stdout: &out, stderr: &errs})
	return out.String(), errs.String(), code
}

func TestTopShowsOneTableWhereNobodyLooks(t *testing.T) {
	p := startProxy(t, "UPSTREAM="+failing(t, "a", 0).URL)
	p.get(0, "/x?token=secret")
	p.await("the route in the page", func() bool { return len(p.lookAt().State.Routes) == 1 })
	out, errs, code := topOf(p)
	if code != exitOK || errs != "" || strings.Contains(out, "\x1b") || strings.Contains(out, "secret") {
		t.Fatalf("%d %s\n%s", code, errs, out)
	}
	for _, want := range []string{"retryproxy ", "default", "5 min", "upstream", "closed"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestTopAsJSON(t *testing.T) {
	p := startProxy(t, "UPSTREAM="+failing(t, "a", 0).URL)
	p.get(0, "/x")
	p.await("the request in the page", func() bool { r := p.lookAt().State.Routes; return len(r) == 1 && r[0].Last.Requests == 1 })
	out, errs, code := topOf(p, "--json")
	var s page.Snapshot
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitOK || len(s.State.Routes) != 1 || s.State.Routes[0].Last.Requests != 1 {
		t.Errorf("%d %s %v\n%s", code, errs, err, out)
	}
}

func TestTopFailsWhenNobodyAnswers(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(context.Background(), &outside{args: []string{"top", "--address", "unix:" + t.TempDir() + "/none"}, stdout: &out, stderr: &errs})
	if code != exitFailed || out.String() != "" || !strings.Contains(errs.String(), "no response from the admin listener unix:") {
		t.Errorf("%d %q %q", code, out.String(), errs.String())
	}
}

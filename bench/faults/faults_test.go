//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/internal/needs"
)

// TestMain lets the test binary be the upstream, as the command is.
func TestMain(m *testing.M) {
	rig.RunRole()
	os.Exit(m.Run())
}

// fine is a result that nothing is wrong with.
func fine() *result {
	c := counts{mayRetry: [verdicts]int{10}, others: [verdicts]int{5}}
	return &result{fault: &fault{name: "x", what: "failed attempts"}, times: 1, counts: c, before: c, drained: c, inFlight: 8, recovered: time.Second, again: true, exit: "exit status 0"}
}

func TestWhatIsNotAsExpectedIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *result)
		says   string
	}{
		"all well":        {func(*result) {}, ""},
		"failed":          {func(r *result) { r.counts.mayRetry[failed] = 1 }, "1 failed that may be retried"},
		"others failed":   {func(r *result) { r.counts.others[failed] = 2 }, "2 of the others failed"},
		"others may fail": {func(r *result) { r.counts.others[failed], r.fail = 2, ambiguous }, ""},
		"all may fail":    {func(r *result) { r.counts.mayRetry[failed], r.counts.others[failed], r.fail = 1, 2, anything }, ""},
		"failed for the reason": {func(r *result) {
			r.counts.others[failed], r.fail, r.reasons, r.counts.why = 1, ambiguous, []string{"late", "may not"}, map[string]int{"502 may not": 1}
		}, ""},
		"failed for another reason": {func(r *result) {
			r.counts.others[failed], r.fail, r.reasons, r.counts.why = 1, ambiguous, []string{"late", "may not"}, map[string]int{"502 reset": 1}
		}, "not for late or may not"},
		"lost":                              {func(r *result) { r.counts.others[lost], r.fail = 1, ambiguous }, "1 lost"},
		"changed":                           {func(r *result) { r.counts.mayRetry[changed] = 1 }, "1 changed"},
		"cut":                               {func(r *result) { r.counts.mayRetry[cut] = 1 }, "1 cut, more than 0"},
		"cut as expected":                   {func(r *result) { r.counts.mayRetry[cut], r.counts.others[cut], r.cut = 1, 1, 2 }, ""},
		"cut more":                          {func(r *result) { r.counts.mayRetry[cut], r.counts.others[cut], r.cut = 1, 2, 2 }, "3 cut, more than 2"},
		"failed before the SIGTERM":         {func(r *result) { r.before.mayRetry[failed] = 1 }, "1 failed that may be retried before the SIGTERM"},
		"refused at the SIGTERM":            {func(r *result) { r.drained.mayRetry[failed] = 1 }, ""},
		"lost at the SIGTERM":               {func(r *result) { r.drained.mayRetry[lost] = 1 }, "1 lost at the SIGTERM"},
		"cut at the SIGTERM":                {func(r *result) { r.drained.mayRetry[cut] = 1 }, "1 cut at the SIGTERM"},
		"fewer answers than were in flight": {func(r *result) { r.inFlight = 16 }, "16 requests were in flight"},
		"nothing in flight":                 {func(r *result) { r.inFlight = 0 }, "no request was in flight"},
		"not effect":                        {func(r *result) { r.times = 0 }, "no failed attempts"},
		"not served again":                  {func(r *result) { r.again = false }, "not served again"},
		"never served again":                {func(r *result) { r.recovered = -1 }, "not served again"},
		"served again late":                 {func(r *result) { r.recovered = recoverWithin + 1 }, "only after"},
		"an exit with an error":             {func(r *result) { r.exit = "exit status 1" }, "exit status 1"},
		"not played":                        {func(r *result) { r.err = "no proxy" }, "no proxy"},
		"impossible":                        {func(r *result) { r.err, r.impossible = "no netem", true }, ""},
	} {
		r := fine()
		tc.change(r)
		if got := strings.Join(r.wrong(), "; "); (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: %q, want %q", name, got, tc.says)
		}
	}
}

func TestRecoveredIsTheFirstAnswerAfterTheEnd(t *testing.T) {
	end := time.Now()
	at := func(d time.Duration, v verdict) event { return event{ended: end.Add(d), verdict: v} }
	if got := recovered([]event{at(-1, served), at(5, failed), at(9, served), at(7, served)}, end); got != 7 {
		t.Errorf("%v", got)
	}
	if got := recovered([]event{at(-1, served), at(5, failed)}, end); got != -1 {
		t.Errorf("%v", got)
	}
}

func TestEveryFaultIsWhole(t *testing.T) {
	names := map[string]bool{}
	for _, f := range faults() {
		if names[f.name] || f.name == "" || f.how == "" || f.mode == "" && (f.begin == nil || f.end == nil) || f.what == "" {
			t.Errorf("%+v", f.name)
		}
		names[f.name] = true
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"--for", "1ms"}, {"--for", "2h"}, {"--only", "no such fault"}} {
		var out, said bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "faults", args, &out, &said); code != rig.Usage || said.Len() == 0 {
			t.Errorf("%v: code %d, said %q", args, code, &said)
		}
	}
}

// playedBy runs the command with the real proxy.
func playedBy(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	needs.Program(t, "ip", "iproute2")
	needs.Program(t, "iptables", "iptables")
	needs.Root(t)
	proxy := t.TempDir() + "/retryproxy"
	build := exec.Command("go", "build", "-o", proxy, "../../cmd/retryproxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	var stdout, stderr bytes.Buffer
	code = rig.Program(run).Run(context.Background(), "faults", append([]string{"--proxy", proxy, "--for", "1500ms"}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// TestAProxyThatRepeatsNothingIsFoundOut plays a fault that the proxy masters, with and without what it masters it by.
func TestAProxyThatRepeatsNothingIsFoundOut(t *testing.T) {
	const fault = "upstream killed and"
	if code, out, said := playedBy(t, "--only", fault); code != rig.OK {
		t.Errorf("code %d\n%s%s", code, out, said)
	}
	code, out, said := playedBy(t, "--only", fault, "--set", "RETRYPROXY_MAX_RETRIES=0", "--set", "RETRYPROXY_BREAKER=off")
	if code != rig.Failed || !strings.Contains(said, "failed that may be retried") {
		t.Errorf("without retries: code %d\n%s%s", code, out, said)
	}
}

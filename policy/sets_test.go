package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/internal/labels"
)

// member is the interface that the closed sets share.
type member interface {
	fmt.Stringer
	Explain() string
}

func members[T member](all []T) []member {
	out := make([]member, len(all))
	for i, v := range all {
		out[i] = v
	}
	return out
}

func allCauses() []Cause { return labels.Sequence[Cause](0, numCauses) }

var closedSets = map[string][]member{
	"class":   members(AllClasses()),
	"cause":   members(allCauses()),
	"reason":  members(append(AllReasons(), ReasonNone)),
	"outcome": members(AllOutcomes()),
	"probe":   members(breaker.AllProbeResults()),
	"layered": members([]LayeredRetries{LayeredHalve, LayeredAllow, LayeredDeny}),
}

// People read a phrase of their language, not a label.
func TestOutcomesAndReasonsHaveWords(t *testing.T) {
	seen := map[string]bool{}
	check := func(label, words string) {
		if words == "" || strings.Contains(words, "_") && !strings.Contains(words, "RETRY_ON") || len(words) > 80 || seen[words] {
			t.Errorf("%s: %q", label, words)
		}
		seen[words] = true
	}
	for _, o := range AllOutcomes() {
		check(o.String(), o.Words())
	}
	for _, r := range AllReasons() {
		check(r.String(), r.Words())
	}
	if got := OutcomeGaveUpNotIdempotent.WordsFor("POST"); got != "not retried: POST without an Idempotency-Key" {
		t.Error(got)
	}
	if got := OutcomeRecovered.WordsFor("POST"); got != "recovered by a retry" {
		t.Error(got)
	}
}

func TestEveryMemberHasItsOwnLabelAndSentence(t *testing.T) {
	label := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	for name, set := range closedSets {
		seen := map[string]bool{}
		for i, m := range set {
			if !label.MatchString(m.String()) || m.String() == "invalid" {
				t.Errorf("%s %d: label %q", name, i, m)
			}
			if seen[m.String()] {
				t.Errorf("%s: label %q twice", name, m)
			}
			seen[m.String()] = true
			if e := m.Explain(); len(e) < 15 || !strings.HasSuffix(e, ".") || e[0] < 'A' || e[0] > 'Z' {
				t.Errorf("%s %s: explained as %q", name, m, e)
			}
		}
	}
}

func TestOutsideTheSetIsInvalid(t *testing.T) {
	for _, m := range []member{Class(numClasses), Cause(numCauses), Reason(numReasons), Outcome(numOutcomes), LayeredRetries(numLayered), Reason(255)} {
		if m.String() != "invalid" {
			t.Errorf("%T outside its set: %q", m, m)
		}
	}
}

// Users have the labels in dashboards and alerts: a change breaks those.
func TestLabelsStayAsPublished(t *testing.T) {
	for name, want := range map[string]string{
		"class": "ok not_sent rejected unknown overtaken",
		"reason": "connect_failure tls_failure idle_close refused_stream reset attempt_timeout malformed response_headers_too_large " +
			"status_429 status_500 status_502 status_503 status_504 status_other header grpc_status asked_to_retry " +
			"not_idempotent retries_exhausted retries_off budget_exhausted deadline retry_after_too_long " +
			"body_too_large retry_buffer_full body_unfinished response_too_large draining upstream_gave_up layered " +
			"not_in_retry_on rate_limit_pause rate_limited switched_off dry_run no_descriptors asked_not_to_retry quota_exhausted request_too_large untrusted_certificate none",
		"outcome": "success recovered gave_up_not_idempotent gave_up_retries_exhausted gave_up_retries_off " +
			"gave_up_budget_exhausted gave_up_deadline gave_up_retry_after_too_long gave_up_body_too_large " +
			"gave_up_retry_buffer_full gave_up_body_unfinished gave_up_response_too_large gave_up_draining " +
			"gave_up_upstream_gave_up gave_up_layered gave_up_not_in_retry_on gave_up_rate_limit_pause gave_up_rate_limited gave_up_switched_off gave_up_dry_run gave_up_no_descriptors gave_up_asked_not_to_retry gave_up_quota_exhausted gave_up_request_too_large gave_up_untrusted_certificate client_gone request_broken " +
			"request_timeout response_broken stream_cut refused upgraded fail_fast queue_dropped queue_timeout overloaded fallback rate_limit_pause rate_limited",
		"layered": "halve allow deny",
	} {
		var got []string
		for _, m := range closedSets[name] {
			got = append(got, m.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s:\n got %v\nwant %v", name, got, strings.Fields(want))
		}
	}
}

func TestEachWhyNotHasItsGaveUpOutcome(t *testing.T) {
	seen := map[Outcome]bool{}
	for _, r := range AllReasons() {
		if r.ForRetry() == r.WhyNot() {
			t.Errorf("%v is for a retry and against one, or neither", r)
		}
		if r.ForRetry() {
			continue
		}
		o := GaveUp(r)
		if o.String() != "gave_up_"+r.String() || !o.GaveUp() || seen[o] {
			t.Errorf("GaveUp(%v) = %v", r, o)
		}
		if !strings.Contains(o.Explain(), r.Explain()) {
			t.Errorf("%v: explained as %q", o, o.Explain())
		}
		seen[o] = true
	}
	for _, o := range AllOutcomes() {
		if o.GaveUp() != strings.HasPrefix(o.String(), "gave_up_") || o.GaveUp() != seen[o] {
			t.Errorf("%v.GaveUp() = %v", o, o.GaveUp())
		}
	}
}

func TestGaveUpOfNoWhyNotIsHarmless(t *testing.T) {
	for _, r := range []Reason{ReasonNone, ReasonReset, ReasonHeader, Reason(numReasons), Reason(255)} {
		if o := GaveUp(r); o != OutcomeGaveUpNotInRetryOn {
			t.Errorf("GaveUp(%v) = %v", r, o)
		}
	}
}

func TestNoneIsNeitherForNorAgainstARetry(t *testing.T) {
	if ReasonNone.ForRetry() || ReasonNone.WhyNot() || Reason(numReasons).WhyNot() {
		t.Error("ReasonNone or a value outside the set claims a meaning")
	}
	if slices.Contains(AllReasons(), ReasonNone) {
		t.Error("AllReasons has ReasonNone, which is never a label")
	}
}

func TestSureIsExactlyWhatTheUpstreamCannotHaveSeen(t *testing.T) {
	for _, c := range allCauses() {
		want := c == CauseDial || c == CauseTLS || c == CauseUntrusted || c == CauseIdleClose || c == CauseRefusedStream
		if c.Sure() != want {
			t.Errorf("%v.Sure() = %v", c, c.Sure())
		}
	}
}

func TestLayeredMaxRetries(t *testing.T) {
	for _, tc := range []struct {
		nested    LayeredRetries
		max, want int
	}{
		{LayeredHalve, 3, 1}, {LayeredHalve, 8, 4}, {LayeredHalve, 1, 0}, {LayeredHalve, 0, 0}, {LayeredHalve, -2, 0},
		{LayeredAllow, 3, 3}, {LayeredAllow, 0, 0}, {LayeredAllow, -2, 0},
		{LayeredDeny, 3, 0}, {LayeredDeny, -2, 0},
		{LayeredRetries(9), 4, 2},
	} {
		if got := tc.nested.MaxRetries(tc.max); got != tc.want {
			t.Errorf("%v.Limit(%d) = %d, want %d", tc.nested, tc.max, got, tc.want)
		}
	}
}

func TestParseLayeredRetriesReadsWhatStringWrites(t *testing.T) {
	for n := LayeredHalve; n < numLayered; n++ {
		if got, err := ParseLayeredRetries(n.String()); err != nil || got != n {
			t.Errorf("%v: %v, %v", n, got, err)
		}
	}
	for _, s := range []string{"", "Halve", "half", "invalid", "deny "} {
		if n, err := ParseLayeredRetries(s); err == nil {
			t.Errorf("%q read as %v", s, n)
		}
	}
}

package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// member is what the closed sets have in common.
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

var closedSets = map[string][]member{
	"class":   members(AllClasses()),
	"cause":   members(AllCauses()),
	"reason":  members(append(AllReasons(), ReasonNone)),
	"outcome": members(AllOutcomes()),
	"probe":   members(AllProbeResults()),
	"fault":   members(AllFaultKinds()),
	"nested":  members([]Nested{NestedHalve, NestedAllow, NestedDeny}),
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
	for _, m := range []member{Class(numClasses), Cause(numCauses), Reason(numReasons), Outcome(numOutcomes), Nested(numNested), Reason(255)} {
		if m.String() != "invalid" {
			t.Errorf("%T outside its set: %q", m, m)
		}
	}
}

// Labels are in dashboards and alerts of other people: a change breaks them.
func TestLabelsStayAsPublished(t *testing.T) {
	for name, want := range map[string]string{
		"class": "ok not_sent rejected unknown overtaken",
		"reason": "connect_failure tls_failure idle_close refused_stream reset attempt_timeout malformed " +
			"status_429 status_500 status_502 status_503 status_504 status_other header grpc_status " +
			"not_idempotent retries_exhausted retries_off budget_exhausted deadline retry_after_too_long " +
			"body_too_large replay_memory_full body_unfinished response_too_large draining upstream_gave_up nested " +
			"not_in_retry_on cooldown throttled quota switched_off observed no_descriptors none",
		"outcome": "success rescued gave_up_not_idempotent gave_up_retries_exhausted gave_up_retries_off " +
			"gave_up_budget_exhausted gave_up_deadline gave_up_retry_after_too_long gave_up_body_too_large " +
			"gave_up_replay_memory_full gave_up_body_unfinished gave_up_response_too_large gave_up_draining " +
			"gave_up_upstream_gave_up gave_up_nested gave_up_not_in_retry_on gave_up_cooldown gave_up_throttled gave_up_quota gave_up_switched_off gave_up_observed gave_up_no_descriptors client_gone request_broken " +
			"request_timeout response_broken refused upgraded shed hold_dropped hold_timeout overloaded fallback cooldown throttled quota",
		"nested": "halve allow deny",
		"fault":  "status reset delay",
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
	for _, c := range AllCauses() {
		want := c == CauseDial || c == CauseTLS || c == CauseIdleClose || c == CauseRefusedStream
		if c.Sure() != want {
			t.Errorf("%v.Sure() = %v", c, c.Sure())
		}
	}
}

func TestNestedLimit(t *testing.T) {
	for _, tc := range []struct {
		nested    Nested
		max, want int
	}{
		{NestedHalve, 3, 1}, {NestedHalve, 8, 4}, {NestedHalve, 1, 0}, {NestedHalve, 0, 0}, {NestedHalve, -2, 0},
		{NestedAllow, 3, 3}, {NestedAllow, 0, 0}, {NestedAllow, -2, 0},
		{NestedDeny, 3, 0}, {NestedDeny, -2, 0},
		{Nested(9), 4, 2},
	} {
		if got := tc.nested.Limit(tc.max); got != tc.want {
			t.Errorf("%v.Limit(%d) = %d, want %d", tc.nested, tc.max, got, tc.want)
		}
	}
}

func TestParseNestedReadsWhatStringWrites(t *testing.T) {
	for n := NestedHalve; n < numNested; n++ {
		if got, err := ParseNested(n.String()); err != nil || got != n {
			t.Errorf("%v: %v, %v", n, got, err)
		}
	}
	for _, s := range []string{"", "Halve", "half", "invalid", "deny "} {
		if n, err := ParseNested(s); err == nil {
			t.Errorf("%q read as %v", s, n)
		}
	}
}

package http1

import (
	"regexp"
	"strings"
	"testing"
)

// The set is closed and each member is reachable: every refusal is the verdict of a case in the tables, or one that the proxy finds.
func TestEveryRefusalHasACase(t *testing.T) {
	shown := map[Refusal]bool{
		RefusalAmbiguousPath: true, RefusalTooManyFrames: true, RefusalNoStreamSlot: true, RefusalNoClientSlot: true, RefusalUnreadBody: true, RefusalOtherHost: true, // found by the proxy
		RefusalHeadersTooLarge: true, RefusalTargetTooLong: true, RefusalTooManyHeaders: true, // TestRequestLimits
	}
	for _, c := range refusedRequests {
		shown[c.want] = true
	}
	for _, c := range refusedResponses {
		shown[c.want] = true
	}
	for _, c := range refusedChunked {
		shown[c.want] = true
	}
	for _, r := range AllRefusals() {
		if !shown[r] {
			t.Errorf("no case is refused as %v", r)
		}
	}
}

func TestRefusalTexts(t *testing.T) {
	label := regexp.MustCompile(`^[a-z][a-z0-9_]*[a-z0-9]$`)
	seen := map[string]bool{}
	all := AllRefusals()
	if len(all) != int(refusalCount)-1 || all[0] != RefusalNone+1 {
		t.Fatalf("AllRefusals has %d members", len(all))
	}
	for _, r := range all {
		switch {
		case !label.MatchString(r.String()) || seen[r.String()]:
			t.Errorf("label %q is malformed or used twice", r)
		case !strings.HasSuffix(r.Explain(), ".") || !strings.Contains(r.Explain(), " "):
			t.Errorf("%v: explanation %q is not a sentence", r, r.Explain())
		}
		seen[r.String()] = true
		switch r.Status() {
		case 400, 403, 413, 414, 417, 431, 501, 503, 505:
		default:
			t.Errorf("%v has status %d", r, r.Status())
		}
		if e := r.Err(); e != r.Err() || e.Reason != r || e.Status != r.Status() || !strings.Contains(e.Error(), r.String()) {
			t.Errorf("%v: Err = %+v", r, r.Err())
		}
	}
	if odd := refusalCount + 3; odd.String() != "unknown" || odd.Status() != 400 || odd.Explain() == "" || odd.Err() == nil {
		t.Error("a value outside the set is not handled")
	}
}

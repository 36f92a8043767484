package labels

import (
	"slices"
	"testing"
)

type digit uint8

func TestEachMemberHasItsTextAndNothingElseHas(t *testing.T) {
	texts := []Text{{Label: "first", Explain: "The first."}, {Label: "second", Explain: "The second."}}
	for i, want := range texts {
		if got := Lookup(texts, i); got != want {
			t.Errorf("%d: %+v", i, got)
		}
	}
	for _, i := range []int{-1, 2, 255} {
		if got := Lookup(texts, i); got.Label != "invalid" || got.Explain == "" {
			t.Errorf("%d is outside the set: %+v", i, got)
		}
	}
	if got := Lookup(nil, 0); got.Label != "invalid" {
		t.Errorf("a set without members has %+v", got)
	}
}

func TestASequenceEndsBeforeItsEnd(t *testing.T) {
	if got := Sequence[digit](0, 3); !slices.Equal(got, []digit{0, 1, 2}) {
		t.Error(got)
	}
	if got := Sequence[digit](2, 4); !slices.Equal(got, []digit{2, 3}) {
		t.Error(got)
	}
	if got := Sequence[digit](2, 2); len(got) != 0 {
		t.Error(got)
	}
	if got := Sequence[digit](253, 255); !slices.Equal(got, []digit{253, 254}) {
		t.Error(got)
	}
}

// Who appends to one sequence does not change the next.
func TestASequenceBelongsToItsCaller(t *testing.T) {
	one := Sequence[digit](0, 2)
	one[0] = 9
	if got := Sequence[digit](0, 2); got[0] != 0 || cap(got) != 2 {
		t.Error(got, cap(got))
	}
}

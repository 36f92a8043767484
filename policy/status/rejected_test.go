package status

import "testing"

func TestParseRejectedReadsStatusesAndRanges(t *testing.T) {
	for _, tc := range []struct {
		list, want string
		has, not   []int
	}{
		{"429", "429", []int{429}, []int{503, 428, 200}},
		{" 503 ,429,529", "429,503,529", []int{429, 503, 529}, []int{500, 502}},
		{"520-529,521", "520-529", []int{520, 529}, []int{519, 530, 429}},
		{"none", "none", nil, []int{429, 503}},
	} {
		set := must(t, tc.list)
		if got := set.String(); got != tc.want {
			t.Errorf("%q reads back as %q, want %q", tc.list, got, tc.want)
		}
		for _, code := range tc.has {
			if !set.Has(code) {
				t.Errorf("%q: %d is not in it", tc.list, code)
			}
		}
		for _, code := range tc.not {
			if set.Has(code) {
				t.Errorf("%q: %d is in it", tc.list, code)
			}
		}
	}
	var zero Set
	if !zero.Has(429) || zero.Has(503) || zero.String() != DefaultRejected {
		t.Errorf("the zero value is %s, want the default", zero)
	}
}

func TestParseRejectedRefusesWhatIsNoFailure(t *testing.T) {
	for _, list := range []string{"", "429,", "200", "600", "42", "5xx", "!503", "529-503", "none,429", "reset"} {
		if set, err := ParseRejected(list); err == nil {
			t.Errorf("%q reads as %s, want an error", list, set)
		}
	}
}

func must(t *testing.T, list string) Set {
	t.Helper()
	set, err := ParseRejected(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

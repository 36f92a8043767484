package clock

import "testing"

func TestTheEarlierOfTwoTimes(t *testing.T) {
	for _, tc := range []struct{ a, b, want Instant }{{0, 5, 5}, {3, 5, 3}, {5, 3, 3}, {4, 4, 4}} {
		if got := Earliest(tc.a, tc.b); got != tc.want {
			t.Errorf("%d, %d: %d", tc.a, tc.b, got)
		}
	}
}

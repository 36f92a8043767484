package ranges

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestBothEndsOfARangeAreInIt(t *testing.T) {
	for v, want := range map[int]bool{2: true, 3: true, 5: true, 1: false, 6: false, -2: false, math.MinInt: false, math.MaxInt: false} {
		if err := Check("n", v, 2, 5); (err == nil) != want {
			t.Errorf("%d of 2 to 5: %v", v, err)
		}
	}
	for v, want := range map[float64]bool{0.5: true, 1.5: true, 0.4999: false, 1.5001: false, math.Inf(1): false, math.Inf(-1): false, -1: false} {
		if err := Check("n", v, 0.5, 1.5); (err == nil) != want {
			t.Errorf("%g of 0.5 to 1.5: %v", v, err)
		}
	}
}

// Zero stands for a setting that was not made, whatever the range.
func TestWhatIsNotSetIsInEveryRange(t *testing.T) {
	if err := Check("n", 0, 2, 5); err != nil {
		t.Error(err)
	}
	if err := Check("d", time.Duration(0), time.Second, time.Minute); err != nil {
		t.Error(err)
	}
}

func TestNotANumberIsInNoRange(t *testing.T) {
	if Check("n", math.NaN(), math.Inf(-1), math.Inf(1)) == nil {
		t.Error("NaN was accepted")
	}
}

// Who reads the error learns which setting is wrong, its value and what is allowed, with units.
func TestTheErrorNamesTheSettingItsValueAndTheRange(t *testing.T) {
	err := Check("base delay", 3*time.Hour, time.Second, time.Minute)
	if err == nil {
		t.Fatal("accepted")
	}
	last := -1
	for _, part := range []string{"base delay", "3h", "1s", "1m"} { // in this order
		at := strings.Index(err.Error(), part)
		if at <= last {
			t.Errorf("%q does not say %s, or not there", err, part)
		}
		last = at
	}
	if strings.Contains(err.Error(), "%") {
		t.Errorf("%q has a value in the wrong place", err)
	}
}

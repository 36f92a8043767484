package proxy

import (
	"slices"
	"testing"
)

// tries is after how many requests each try came, of so many requests, when what is there is told by there.
func tries(requests int, there func(n int) bool) (at []int) {
	y := newYielding()
	for n := range requests {
		if y.due() {
			at = append(at, n)
		}
		y.looked(there(n))
		y.looked(there(n)) // a second look of the same wait says nothing
	}
	return at
}

func TestYieldingGoesOnWhileItHelps(t *testing.T) {
	at := tries(20, func(int) bool { return true })
	if want := []int{8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}; !slices.Equal(at, want) {
		t.Errorf("tried before %v, want %v", at, want)
	}
}

func TestYieldingInVainBecomesRare(t *testing.T) {
	at := tries(400, func(int) bool { return false })
	if want := []int{8, 11, 16, 25, 42, 75, 140, 205, 270, 335}; !slices.Equal(at, want) {
		t.Errorf("tried before %v, want %v", at, want)
	}
}

// What one time of rest taught is unlearnt by the first try that helps.
func TestYieldingTurns(t *testing.T) {
	at := tries(150, func(n int) bool { return n >= 100 })
	if want := []int{8, 11, 16, 25, 42, 75, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149}; !slices.Equal(at, want) {
		t.Errorf("tried before %v, want %v", at, want)
	}
}

package oldrig

import "slices"

// Median is the middle of all, or of its two middle ones the mean; 0 of none.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

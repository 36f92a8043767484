package tokens

// Fate is what happened to the tokens that a response used.
type Fate uint8

// The fates, a closed set.
const (
	Delivered Fate = iota // the client got the complete response
	Wasted                // the client got a part of it, or nothing
	Retried               // another attempt replaced the response
	NumFates
)

var fateNames = [NumFates]string{Delivered: "delivered", Wasted: "wasted", Retried: "retried"}

// String returns the label, or "invalid" for a value outside the set.
func (f Fate) String() string {
	if f >= NumFates {
		return "invalid"
	}
	return fateNames[f]
}

// Part is a part of a Count.
type Part uint8

// The parts, a closed set.
const (
	PartInput Part = iota
	PartOutput
	PartCached
	NumParts
)

var partNames = [NumParts]string{PartInput: "input", PartOutput: "output", PartCached: "cached"}

// String returns the label, or "invalid" for a value outside the set.
func (p Part) String() string {
	if p >= NumParts {
		return "invalid"
	}
	return partNames[p]
}

// Of returns a part of c.
func (c Count) Of(p Part) int64 {
	switch p {
	case PartInput:
		return c.Input
	case PartOutput:
		return c.Output
	case PartCached:
		return c.Cached
	}
	return 0
}

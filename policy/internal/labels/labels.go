// Package labels holds the texts of closed sets: the value of a metric label, and a
// sentence about it.
package labels

// Text is the label, a phrase and the sentence of one member of a closed set.
type Text struct {
	Label   string
	Words   string // a phrase for people, in place of the label; "" if nobody reads it
	Explain string
}

// Lookup returns the texts of member i; the label is "invalid" if i is outside the set.
func Lookup(texts []Text, i int) Text {
	if i < 0 || i >= len(texts) {
		return Text{Label: "invalid", Explain: "Not a member of the set."}
	}
	return texts[i]
}

// Sequence returns first, first+1, ... up to but excluding end.
func Sequence[T ~uint8](first, end T) []T {
	all := make([]T, 0, end-first)
	for v := first; v < end; v++ {
		all = append(all, v)
	}
	return all
}

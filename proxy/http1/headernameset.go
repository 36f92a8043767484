package http1

// HeaderNameSet is the set of the known names in a header section, in one word. Most names
// looked for are absent, which it shows without a search. The last few names share their
// bits with the first few, so it may report an absent name as present, but never the
// reverse.
type HeaderNameSet uint64

// HeaderNamesOf returns the names of headers.
func HeaderNamesOf(headers []Header) HeaderNameSet {
	var s HeaderNameSet
	for i := range headers {
		s |= 1 << (headers[i].ID % 64)
	}
	return s
}

// Has reports whether id is in the set.
func (s HeaderNameSet) Has(id HeaderName) bool { return s>>(id%64)&1 != 0 }

// HasAny reports whether s and of have a name in common.
func (s HeaderNameSet) HasAny(of HeaderNameSet) bool { return s&of != 0 }

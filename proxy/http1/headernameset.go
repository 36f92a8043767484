package http1

// HeaderNameSet is the set of the known names in a header section, in one word: most names that are asked for are in no field, which is told by
// it without a look at each. The last few names share their bits with the first few, so that a set may say of those that they
// are in it when they are not, and never the other way round.
type HeaderNameSet uint64

// HeaderNamesOf gives the names of fields.
func HeaderNamesOf(headers []Header) HeaderNameSet {
	var s HeaderNameSet
	for i := range headers {
		s |= 1 << (headers[i].ID % 64)
	}
	return s
}

// Has reports whether id is in the set.
func (s HeaderNameSet) Has(id HeaderName) bool { return s>>(id%64)&1 != 0 }

// HasAny reports whether a name of both sets is there.
func (s HeaderNameSet) HasAny(of HeaderNameSet) bool { return s&of != 0 }

package http1

// NameSet is the set of the known names in a head, in one word: most names that are asked for are in no field, which is told by
// it without a look at each. The last few names share their bits with the first few, so that a set may say of those that they
// are in it when they are not, and never the other way round.
type NameSet uint64

// NamesOf gives the names of fields.
func NamesOf(fields []Field) NameSet {
	var s NameSet
	for i := range fields {
		s |= 1 << (fields[i].ID % 64)
	}
	return s
}

// Has reports whether id is in the set.
func (s NameSet) Has(id Name) bool { return s>>(id%64)&1 != 0 }

// HasAny reports whether a name of both sets is there.
func (s NameSet) HasAny(of NameSet) bool { return s&of != 0 }

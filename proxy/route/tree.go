package route

import "bytes"

// tree holds the rules of one host by path.
type tree struct {
	root node
	any  leaf // rules without path
}

// node is a point between two segments of a path: the root stands before the
// first, its child "a" after "/a".
type node struct {
	children map[string]*node // by decoded segment
	exact    *leaf            // rules for exactly this path
	prefix   *leaf            // rules for this path and all below
	up       *node            // the nearest node above with a prefix; set by link
}

// leafFor gives the leaf for the pattern's path, made when missing.
func (t *tree) leafFor(p *pattern) *leaf {
	n := &t.root
	for _, s := range p.segments {
		child := n.children[s]
		if child == nil {
			if n.children == nil {
				n.children = map[string]*node{}
			}
			child = &node{}
			n.children[s] = child
		}
		n = child
	}
	l := &n.exact
	if p.prefix {
		l = &n.prefix
	}
	if *l == nil {
		*l = &leaf{}
	}
	return *l
}

func (n *node) link(up *node) {
	n.up = up
	if n.prefix != nil {
		up = n
	}
	for _, c := range n.children {
		c.link(up)
	}
}

// find gives the entry with the longest path that takes the request.
func (t *tree) find(q *query) *entry {
	if len(q.path) == 0 || q.path[0] != '/' { // the asterisk form
		return t.any.pick(q)
	}
	n, whole := t.root.descend(q)
	if whole && n.exact != nil {
		if e := n.exact.pick(q); e != nil {
			return e
		}
	}
	if n.prefix == nil {
		n = n.up
	}
	for ; n != nil; n = n.up {
		if e := n.prefix.pick(q); e != nil {
			return e
		}
	}
	return t.any.pick(q)
}

// descend walks the path as far as there are nodes for it; whole is true when
// that is all of it.
func (n *node) descend(q *query) (at *node, whole bool) {
	if bytes.IndexByte(q.path, '%') >= 0 {
		return n.descendEncoded(q)
	}
	rest := q.path[1:]
	for n.children != nil {
		end := bytes.IndexByte(rest, '/')
		segment := rest
		if end >= 0 {
			segment = rest[:end]
		}
		q.lookups++
		child := n.children[string(segment)]
		if child == nil {
			return n, false
		}
		n = child
		if end < 0 {
			return n, true
		}
		rest = rest[end+1:]
	}
	return n, false
}

// descendEncoded is descend for a path with percent-encoded octets.
func (n *node) descendEncoded(q *query) (at *node, whole bool) {
	var buf [maxSegment]byte
	rest := q.path[1:]
	for n.children != nil {
		segment, after, more := bytes.Cut(rest, slash)
		decoded, ok := decodeSegment(buf[:], segment)
		if !ok {
			return n, false
		}
		q.lookups++
		child := n.children[string(decoded)]
		if child == nil {
			return n, false
		}
		n = child
		if !more {
			return n, true
		}
		rest = after
	}
	return n, false
}

var slash = []byte("/")

// leaf holds the rules that differ only in header and methods.
type leaf struct {
	plain   choice   // rules without header
	headers []header // by name, in the order of the rules
}

// header holds the rules that ask for one field name.
type header struct {
	name    string // as first written in a rule
	present choice // whatever its value
	values  map[string]*choice
}

// choice holds rules that differ only in their methods.
type choice struct {
	any      *entry
	byMethod map[string]*entry
}

// pick gives the leaf's entry for the request, nil when none matches.
func (l *leaf) pick(q *query) *entry {
	q.lookups++
	if len(l.headers) > 0 && q.header != nil {
		if e := l.pickHeader(q); e != nil {
			return e
		}
	}
	e, _ := l.plain.pick(q)
	return e
}

// pickHeader compares what each header name offers: a value counts more than
// presence, then methods more than none, then the order of the rules.
func (l *leaf) pickHeader(q *query) *entry {
	var best *entry
	bestRank := 0
	for i := range l.headers {
		h := &l.headers[i]
		q.lookups++
		value, ok := q.header.Lookup(h.name)
		if !ok {
			continue
		}
		e, rank := h.pick(value, q)
		if e != nil && (best == nil || rank > bestRank || rank == bestRank && e.order < best.order) {
			best, bestRank = e, rank
		}
	}
	return best
}

func (h *header) pick(value []byte, q *query) (e *entry, rank int) {
	if c := h.values[string(value)]; c != nil {
		if e, rank = c.pick(q); e != nil {
			return e, rank + 2
		}
	}
	return h.present.pick(q)
}

// pick ranks a rule that names the method 1, one for any method 0.
func (c *choice) pick(q *query) (e *entry, rank int) {
	if e := c.byMethod[string(q.method)]; e != nil {
		return e, 1
	}
	return c.any, 0
}

package route

import "bytes"

// tree holds the rules of one host by path.
type tree struct {
	root  node
	any   leaf // rules without path
	stars bool // some path has a "*" within
}

// node is a point between two segments of a path: the root before the first, its child "a"
// after "/a". It has few pointers: with many routes, the latency of memory dominates the
// cost of a lookup.
type node struct {
	children    children
	star        *node // the child for any segment; nil if there is none
	prefixAbove *node // the nearest node above with a prefix; set by link
	prefix      leaf  // rules for this path and everything below
	exact       leaf  // rules for exactly this path
}

// children maps decoded segments to nodes. The first one is stored inline, as most nodes
// have no other.
type children struct {
	segment string
	first   *node
	more    map[string]*node
}

// add returns the child, and makes it if necessary.
func (c *children) add(segment string) *node {
	if n := c.get([]byte(segment)); n != nil {
		return n
	}
	n := &node{}
	switch {
	case c.first == nil:
		c.segment, c.first = segment, n
	case c.more == nil:
		c.more = map[string]*node{segment: n}
	default:
		c.more[segment] = n
	}
	return n
}

func (c *children) get(segment []byte) *node {
	if c.segment == string(segment) {
		return c.first
	}
	if c.more == nil {
		return nil
	}
	return c.more[string(segment)]
}

// leafFor returns the leaf for the pattern's path.
func (t *tree) leafFor(p *pattern) *leaf {
	n := &t.root
	for _, s := range p.segments {
		switch {
		case s != anySegment:
			n = n.children.add(s)
			continue
		case n.star == nil:
			n.star, t.stars = &node{}, true
		}
		n = n.star
	}
	if p.prefix {
		return &n.prefix
	}
	return &n.exact
}

func (n *node) link(up *node) {
	n.prefixAbove = up
	if !n.prefix.empty() {
		up = n
	}
	if n.children.first != nil {
		n.children.first.link(up)
	}
	for _, c := range n.children.more {
		c.link(up)
	}
}

// find returns the rule with the longest path that matches the request.
func (t *tree) find(q *query) ref {
	if len(q.path) == 0 || q.path[0] != '/' { // the asterisk form
		return t.any.pick(q)
	}
	if t.stars {
		if e := t.root.search(q, q.path[1:], false); e != 0 {
			return e
		}
		return t.any.pick(q)
	}
	n, whole := t.root.descend(q)
	if whole {
		if e := n.exact.pick(q); e != 0 {
			return e
		}
	}
	for ; n != nil; n = n.prefixAbove {
		if e := n.prefix.pick(q); e != 0 {
			return e
		}
	}
	return t.any.pick(q)
}

// search returns the rule for a path whose first segments led to n, in a tree with "*" within
// paths. rest is what follows them, unless whole reports that nothing does. A name ranks above "*",
// and both above the prefix of n. It visits each node of the tree at most once.
func (n *node) search(q *query, rest []byte, whole bool) ref {
	if whole {
		if e := n.exact.pick(q); e != 0 {
			return e
		}
		return n.prefix.pick(q)
	}
	segment, after, more := bytes.Cut(rest, slash)
	q.lookups++
	if child := n.child(segment); child != nil {
		if e := child.search(q, after, !more); e != 0 {
			return e
		}
	}
	if n.star != nil && len(segment) > 0 {
		if e := n.star.search(q, after, !more); e != 0 {
			return e
		}
	}
	return n.prefix.pick(q)
}

// child returns the child for an encoded segment, nil if there is none.
func (n *node) child(segment []byte) *node {
	if bytes.IndexByte(segment, '%') < 0 {
		return n.children.get(segment)
	}
	var buf [maxSegment]byte
	decoded, ok := decodeSegment(buf[:], segment)
	if !ok {
		return nil
	}
	return n.children.get(decoded)
}

// descend follows the path as far as there are nodes for it; whole reports whether that is
// all of it.
func (n *node) descend(q *query) (at *node, whole bool) {
	if bytes.IndexByte(q.path, '%') >= 0 {
		return n.descendEncoded(q)
	}
	rest := q.path[1:]
	for n.children.first != nil {
		end := bytes.IndexByte(rest, '/')
		segment := rest
		if end >= 0 {
			segment = rest[:end]
		}
		q.lookups++
		child := n.children.get(segment)
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
	for n.children.first != nil {
		segment, after, more := bytes.Cut(rest, slash)
		decoded, ok := decodeSegment(buf[:], segment)
		if !ok {
			return n, false
		}
		q.lookups++
		child := n.children.get(decoded)
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
	any  ref        // the rule without header and methods
	more *qualified // nil if there are none
}

// qualified holds rules with header or methods.
type qualified struct {
	byMethod map[string]ref // rules without header
	headers  []header       // by name, in the order of the rules
}

// header holds the rules for one header name.
type header struct {
	name    string // as spelled in its first rule
	present choice // for any value
	values  map[string]*choice
}

// choice holds rules with the same header that differ only in their methods.
type choice struct {
	any      ref
	byMethod map[string]ref
}

func (l *leaf) empty() bool { return l.any == 0 && l.more == nil }

// pick returns the leaf's rule for the request, 0 if none matches.
func (l *leaf) pick(q *query) ref {
	q.lookups++
	if l.more != nil {
		if e := l.more.pick(q); e != 0 {
			return e
		}
	}
	return l.any
}

func (l *qualified) pick(q *query) ref {
	if l.headers != nil && q.header != nil {
		if e := l.pickHeader(q); e != 0 {
			return e
		}
	}
	return l.byMethod[string(q.method)]
}

// pickHeader returns the best rule over all header names: a value ranks above presence,
// then methods above none, then the order of the rules.
func (l *qualified) pickHeader(q *query) ref {
	var best ref
	bestRank := 0
	for i := range l.headers {
		h := &l.headers[i]
		q.lookups++
		value, ok := q.header.Lookup(h.name)
		if !ok {
			continue
		}
		e, rank := h.pick(value, q)
		if e != 0 && (best == 0 || rank > bestRank || rank == bestRank && e < best) {
			best, bestRank = e, rank
		}
	}
	return best
}

func (h *header) pick(value []byte, q *query) (e ref, rank int) {
	if c := h.values[string(value)]; c != nil {
		if e, rank = c.pick(q); e != 0 {
			return e, rank + 2
		}
	}
	return h.present.pick(q)
}

// pick ranks a rule that lists the method 1, and one for any method 0.
func (c *choice) pick(q *query) (e ref, rank int) {
	if e := c.byMethod[string(q.method)]; e != 0 {
		return e, 1
	}
	return c.any, 0
}

package route

import "bytes"

// tree holds the rules of one host by path.
type tree struct {
	root node
	any  leaf // rules without path
}

// node is a point between two segments of a path: the root before the first, its child "a"
// after "/a". It has few pointers: with many routes, the latency of memory dominates the
// cost of a lookup.
type node struct {
	children children
	star     *node // the child for any segment; nil if there is none
	prefix   leaf  // rules for this path and everything below
	exact    leaf  // rules for exactly this path
}

// children maps decoded segments to nodes. The first one is stored inline, as most nodes
// have no other: with 10 000 routes, maps alone make a lookup three times as slow.
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
			n.star = &node{}
		}
		n = n.star
	}
	if p.prefix {
		return &n.prefix
	}
	return &n.exact
}

// find returns the rule with the longest path that matches the request.
func (t *tree) find(q *query) ref {
	if len(q.path) > 0 && q.path[0] == '/' { // otherwise it is the asterisk form
		if e := t.root.search(q, q.path[1:], false); e != 0 {
			return e
		}
	}
	return t.any.pick(q)
}

// search returns the rule for a path whose first segments led to n. rest is what follows them,
// unless whole reports that nothing does. A name ranks above "*", and both above the prefix of n. It
// visits each node of the tree at most once.
func (n *node) search(q *query, rest []byte, whole bool) ref {
	if whole {
		if e := n.exact.pick(q); e != 0 {
			return e
		}
		return n.prefix.pick(q)
	}
	if n.children.first != nil || n.star != nil {
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

var slash = []byte("/")

package route

import "bytes"

// ref is a rule in the index: its position among the rules plus 1, so that 0 is none.
type ref int32

// query is a request for the index. lookups counts the hash lookups and the leaves tried;
// tests compare it with the number of rules.
type query struct {
	host, path, method []byte
	header             HeaderLookup
	lookups            int
}

// index holds the rules by listener. The main listener needs no lookup.
type index struct {
	main  hosts
	ports map[string]*hosts
}

func newIndex() index { return index{ports: map[string]*hosts{}} }

func (x *index) listener(listen string) *hosts {
	if listen == "" {
		return &x.main
	}
	return x.ports[listen] // nil when no rule is for it
}

// add stores e under its pattern. It returns the rules that match the same requests, and
// for which methods.
func (x *index) add(p *pattern, e ref) []collision {
	s := x.listener(p.listen)
	if s == nil {
		s = &hosts{}
		x.ports[p.listen] = s
	}
	root := s.root(p)
	leaf := &root.any
	if p.hasPath {
		s.paths = true
		leaf = root.leafFor(p)
	}
	return leaf.add(p, e)
}

// find returns the most specific rule, 0 if no rule matches.
func (x *index) find(listen string, q *query) ref {
	s := x.listener(listen)
	if s == nil {
		return 0
	}
	if s.named {
		if e := s.findNamed(q); e != 0 {
			return e
		}
	}
	if s.other == nil {
		return 0
	}
	return s.other.find(q)
}

// hosts holds the rules of one listener by host.
type hosts struct {
	exact      map[string]*tree // "name" or "name:port", in lower case
	wild       map[string]*tree // the same for the part after "*."
	other      *tree            // rules without host
	named      bool             // exact or wild is not empty
	ports      bool             // some rule has a port
	wildLabels int              // maximum number of labels in a key of wild
	paths      bool             // some rule has a path
}

// root returns the tree for the pattern's host, and makes it if necessary.
func (s *hosts) root(p *pattern) *tree {
	if p.host == "" {
		if s.other == nil {
			s.other = &tree{}
		}
		return s.other
	}
	s.named = true
	s.ports = s.ports || p.port
	m := &s.exact
	if p.wild {
		m = &s.wild
		s.wildLabels = max(s.wildLabels, p.labels)
	}
	if *m == nil {
		*m = map[string]*tree{}
	}
	if (*m)[p.host] == nil {
		(*m)[p.host] = &tree{}
	}
	return (*m)[p.host]
}

// findNamed tries the rules with a host: first the full name, then the wildcards from the
// longest on.
func (s *hosts) findNamed(q *query) ref {
	var buf [maxHost]byte
	full, name, ok := foldHost(buf[:0], q.host)
	if !ok {
		return 0
	}
	if e := s.try(s.exact, full, name, q); e != 0 {
		return e
	}
	if s.wildLabels == 0 {
		return 0
	}
	left := bytes.Count(full[:name], dot) // number of labels after the first dot
	for at := 0; left > 0; left-- {
		at += bytes.IndexByte(full[at:name], '.') + 1
		if left > s.wildLabels {
			continue
		}
		if e := s.try(s.wild, full[at:], name-at, q); e != 0 {
			return e
		}
	}
	return 0
}

var dot = []byte(".")

// try looks up full ("name:port" or "name") and then its first name bytes.
func (s *hosts) try(m map[string]*tree, full []byte, name int, q *query) ref {
	if s.ports && name < len(full) {
		q.lookups++
		if t := m[string(full)]; t != nil {
			if e := t.find(q); e != 0 {
				return e
			}
		}
	}
	q.lookups++
	if t := m[string(full[:name])]; t != nil {
		return t.find(q)
	}
	return 0
}

// maxHost is the maximum length of a host with port: 255 bytes of name (RFC 1035 section
// 2.3.4) with the final dot, and ":65535".
const maxHost = 262

// foldHost appends the host in lower case to dst, without a trailing dot, and returns it
// with the length of the part before ":port". It returns false for hosts that no rule can
// have.
func foldHost(dst, host []byte) (full []byte, name int, ok bool) {
	if len(host) == 0 || len(host) > maxHost {
		return nil, 0, false
	}
	end := portAt(host)
	name = end
	if end > 1 && host[end-1] == '.' {
		name--
	}
	for _, c := range host[:name] {
		dst = append(dst, lower(c))
	}
	return append(dst, host[end:]...), name, true
}

// portAt returns the index of the colon before the port, len(host) without one.
func portAt(host []byte) int {
	i := bytes.LastIndexByte(host, ':')
	if i < 0 || bytes.IndexByte(host[i:], ']') >= 0 {
		return len(host)
	}
	return i
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

package route

import (
	"bytes"
	"strings"
	"sync"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// Upstreams normalise paths before they use them, each in its own way: they decode once or
// twice, drop parameters, treat backslashes as slashes, merge slashes, resolve dot
// segments, in some order, or do none of it. An interpretation of a path is the result of
// any sequence of these steps.
//
// Sources: RFC 3986 section 6.2.2 (unreserved octets, dot segments), nginx merge_slashes and
// Apache MergeSlashes, servlet containers (";" parameters per segment, RFC 3986 section 3.3, or
// everything after the first), IIS and the WHATWG URL standard (backslash), and decoders of
// overlong UTF-8 (RFC 3629 section 10). Software that decodes a path and then parses it again ends
// it at a "?" or "#", and C ends a string at a zero.
var normalizers = [...]normalizer{
	{decodeUnreserved, []string{"%"}},
	{decodeAll, []string{"%"}},
	{replaceOverlong, []string{"\xc0", "\xc1", "\xe0", "\xf0", "%c", "%C", "%e", "%E", "%f", "%F"}},
	{replaceBackslashes, []string{`\`}},
	{cutParams, []string{";"}},
	{cutAfterParam, []string{";"}},
	{cutAtQuery, []string{"?", "#", "\x00"}},
	{mergeSlashes, []string{"//"}},
	{removeDots, []string{"/."}},
}

// normalizer is one step of path normalisation.
type normalizer struct {
	apply    func(dst, path []byte) []byte
	triggers []string // a path without any of these is unchanged
}

func (s *normalizer) changes(path []byte) bool {
	for _, n := range s.triggers {
		if bytes.Contains(path, []byte(n)) {
			return true
		}
	}
	return false
}

// Limits of the work for one path. Beyond them the path counts as ambiguous: no legitimate
// request combines so many special cases at such a length.
const (
	maxInterpretations     = 128
	maxInterpretationBytes = 128 << 10 // bytes processed by the steps
)

// IsPlain reports whether no step can change the segments of the path, so that it is never
// ambiguous. Such a path has no empty segment except the last, no dot segment, no
// backslash, no ";", none of these encoded, and no encoded or stray "%".
func IsPlain(path []byte) bool {
	for i, c := range path {
		switch {
		case !special[c]:
		case c != '/':
			if isOdd(path, i) {
				return false
			}
		case i+1 < len(path) && path[i+1] <= '/' && !beginsPlainSegment(path[i+1:]):
			return false
		}
	}
	return true
}

// special marks the bytes that IsPlain examines further.
var special = [256]bool{'/': true, '%': true, '\\': true, ';': true, 0xc0: true, 0xc1: true, 0xe0: true, 0xf0: true}

// beginsPlainSegment reports whether the first segment of p is neither empty nor a dot
// segment.
func beginsPlainSegment(p []byte) bool {
	return p[0] != '/' && dotSegment(p) == 0
}

func isOdd(path []byte, i int) bool {
	c, width := octet(path, i)
	switch c {
	case '\\', ';', '%': // a stray "%" may precede digits once others are decoded
		return true
	case '/', '.', '?', '#', 0:
		return width > 1
	}
	_, long := overlong(path, i)
	return long > 0
}

// dotSegment returns the length of the "." or ".." that is the whole first segment of p,
// else 0.
func dotSegment(p []byte) int {
	n := 0
	for n < len(p) && p[n] == '.' {
		n++
	}
	if n > 2 || n < len(p) && p[n] != '/' {
		return 0
	}
	return n
}

// Ambiguous reports whether some interpretation of the path belongs to another route than
// the path itself, or is below the stripped prefix if the path is not (or the reverse). The
// first five arguments are those of Find; strip is the prefix that the found route strips,
// "" for none. A path for which IsPlain is true costs one pass over its bytes. For others
// work and memory are limited, and the path counts as ambiguous if the limits are reached.
func (t *Table[T]) Ambiguous(listen string, host, path, method []byte, h HeaderLookup, strip string) bool {
	for len(strip) > 0 && strip[len(strip)-1] == '/' {
		strip = strip[:len(strip)-1]
	}
	if IsPlain(path) && (bytes.IndexByte(path, '%') < 0 || strip == "") && strings.IndexByte(strip, '%') < 0 {
		return false
	}
	s := t.index.listener(listen)
	if len(path) == 0 || path[0] != '/' || strip == "" && (s == nil || !s.paths) {
		return false
	}
	x := checkerPool.Get().(*ambiguityChecker)
	defer checkerPool.Put(x)
	x.start(&t.index, listen, strip, &query{host: host, path: path, method: method, header: h})
	return x.ambiguous()
}

// Climbs reports whether some upstream could find a ".." segment in the path. Such a path could
// lead out of a base path.
func Climbs(path []byte) bool {
	if IsPlain(path) && bytes.IndexByte(path, '%') < 0 {
		return false
	}
	p := path
	for _, apply := range [...]func(dst, path []byte) []byte{decodeAll, replaceOverlong, replaceBackslashes, cutParams} {
		if hasDoubleDot(p) {
			return true
		}
		p = apply(nil, p)
	}
	return hasDoubleDot(p)
}

func hasDoubleDot(path []byte) bool {
	for segment := range bytes.SplitSeq(path, []byte("/")) {
		if string(segment) == ".." {
			return true
		}
	}
	return false
}

// interpretation is a path, and its remainder after the stripped prefix, both after the
// same steps. rest is nil if nothing is stripped.
type interpretation struct{ path, rest []byte }

// ambiguityChecker checks all interpretations of one path. Its memory is reused.
type ambiguityChecker struct {
	index  *index
	listen string
	strip  string
	query  query
	found  ref
	below  bool // the path is below strip

	interpretations []interpretation
	arena           []byte // holds the bytes of the interpretations
	work            int
}

var checkerPool = sync.Pool{New: func() any { return new(ambiguityChecker) }}

func (x *ambiguityChecker) start(ix *index, listen, strip string, q *query) {
	x.index, x.listen, x.strip, x.query = ix, listen, strip, *q
	x.found = ix.find(listen, &x.query)
	x.interpretations, x.arena, x.work = x.interpretations[:0], x.arena[:0], 0
	first := interpretation{path: q.path}
	first.rest, x.below = cutRaw(q.path, strip)
	x.interpretations = append(x.interpretations, first)
}

// ambiguous checks every interpretation in turn, and adds those that the steps produce from
// it.
func (x *ambiguityChecker) ambiguous() bool {
	defer func() { // the pool must not keep a request's memory alive
		x.index, x.query = nil, query{}
		clear(x.interpretations)
		poison.Fill(x.arena)
	}()
	for i := 0; i < len(x.interpretations); i++ {
		if !x.agrees(x.interpretations[i]) {
			return true
		}
		for s := range normalizers {
			if !x.apply(&normalizers[s], x.interpretations[i]) {
				return true
			}
		}
	}
	return false
}

// agrees reports whether the interpretation belongs to the path's own route and is below
// the stripped prefix if and only if the path is, with the same remainder.
func (x *ambiguityChecker) agrees(r interpretation) bool {
	x.query.path = r.path
	if x.index.find(x.listen, &x.query) != x.found {
		return false
	}
	rest, below := cutDecoded(r.path, x.strip)
	if below != x.below {
		return false
	}
	return !below || bytes.Equal(rest, r.rest)
}

// apply adds the interpretation that s produces from r, if it is new. It returns false if a
// limit is reached.
func (x *ambiguityChecker) apply(s *normalizer, r interpretation) bool {
	if !s.changes(r.path) { // then rest, a suffix of path, does not change either
		return true
	}
	x.work += len(r.path) + len(r.rest)
	if x.work > maxInterpretationBytes {
		return false
	}
	to := interpretation{path: x.store(s, r.path)}
	if r.rest != nil {
		to.rest = x.store(s, r.rest)
	}
	for i := range x.interpretations {
		if bytes.Equal(x.interpretations[i].path, to.path) && bytes.Equal(x.interpretations[i].rest, to.rest) {
			return true
		}
	}
	if len(x.interpretations) == maxInterpretations {
		return false
	}
	x.interpretations = append(x.interpretations, to)
	return true
}

// store appends the result of s for p to the arena. A returned slice stays valid if the
// arena grows: it then refers to the old memory.
func (x *ambiguityChecker) store(s *normalizer, p []byte) []byte {
	from := len(x.arena)
	x.arena = s.apply(x.arena, p)
	return x.arena[from:]
}

// cutRaw removes the prefix byte for byte, as package forward does.
func cutRaw(path []byte, strip string) (rest []byte, below bool) {
	if strip == "" || len(path) < len(strip) || string(path[:len(strip)]) != strip {
		return nil, false
	}
	return remainder(path[len(strip):])
}

// cutDecoded removes the prefix like an upstream that decodes "%61" to "a".
func cutDecoded(path []byte, strip string) (rest []byte, below bool) {
	if strip == "" {
		return nil, false
	}
	prefix := []byte(strip)
	i := 0
	for j := 0; j < len(prefix); {
		if i >= len(path) {
			return nil, false
		}
		a, m := octet(path, i)
		b, n := octet(prefix, j)
		if a != b {
			return nil, false
		}
		i, j = i+m, j+n
	}
	return remainder(path[i:])
}

func remainder(rest []byte) ([]byte, bool) {
	if len(rest) == 0 {
		return slash, true
	}
	if rest[0] != '/' {
		return nil, false
	}
	return rest, true
}

package route

import (
	"bytes"
	"strings"
	"sync"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// Upstreams tidy paths before they look at them, each in its own way: they
// decode once or twice, drop parameters, take backslashes for slashes, merge
// slashes, resolve dot segments, in some order, or do none of it. A reading is
// what any sequence of these steps can make of a path.
//
// Where they are known from: RFC 3986 section 6.2.2 (unreserved octets, dot
// segments), nginx merge_slashes and Apache MergeSlashes, servlet containers
// (";" parameters per segment, RFC 3986 section 3.3, or everything after the
// first), IIS and the WHATWG URL standard (backslash), and decoders of
// overlong UTF-8 (RFC 3629 section 10).
var normalizers = [...]normalizer{
	{decodeUnreserved, []string{"%"}},
	{decodeAll, []string{"%"}},
	{foldOverlong, []string{"\xc0", "\xc1", "\xe0", "\xf0", "%c", "%C", "%e", "%E", "%f", "%F"}},
	{turnBackslashes, []string{`\`}},
	{cutParams, []string{";"}},
	{cutAfterParam, []string{";"}},
	{mergeSlashes, []string{"//"}},
	{removeDots, []string{"/."}},
}

// normalizer is one way to tidy a path.
type normalizer struct {
	apply    func(dst, path []byte) []byte
	triggers []string // without any of these in the path nothing changes
}

func (s *normalizer) changes(path []byte) bool {
	for _, n := range s.triggers {
		if bytes.Contains(path, []byte(n)) {
			return true
		}
	}
	return false
}

// What settling one path may cost. Past it the path counts as ambiguous: no
// honest request mixes so many oddities at such a length.
const (
	maxInterpretations     = 128
	maxInterpretationBytes = 128 << 10 // bytes put through the steps
)

// IsPlain says that no step can change which segments the path has, so that it
// is never ambiguous: it has no empty segment but the last, no dot segment, no
// backslash, no ";", none of these encoded, and no encoded or
// stray "%".
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

// special holds the bytes that Plain looks at more closely.
var special = [256]bool{'/': true, '%': true, '\\': true, ';': true, 0xc0: true, 0xc1: true, 0xe0: true, 0xf0: true}

// beginsPlainSegment says that a segment is neither empty nor of dots; p begins with it.
func beginsPlainSegment(p []byte) bool {
	return p[0] != '/' && dotSegment(p) == 0
}

func isOdd(path []byte, i int) bool {
	c, width := octet(path, i)
	switch c {
	case '\\', ';', '%': // a stray "%" may meet digits once others are decoded
		return true
	case '/', '.':
		return width > 1
	}
	_, long := overlong(path, i)
	return long > 0
}

// dotSegment gives the length of the "." or ".." that is the whole first
// segment of p, else 0.
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

// Ambiguous says whether some reading of the path would belong to another
// route than the path itself, or would not lie below the prefix that is
// stripped where the path does (or the other way round). The first five
// arguments are Find's; strip is the prefix that the found route strips, ""
// for none. A path that is Plain costs one pass over its bytes; an odd one is
// bounded in work and memory, and ambiguous when that is not enough to tell.
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

// interpretation is what a path, and what remains of it after the stripped prefix,
// look like after the same steps. rest is nil when nothing is stripped.
type interpretation struct{ path, rest []byte }

// ambiguityChecker goes through all readings of one path. Its memory is reused.
type ambiguityChecker struct {
	index  *index
	listen string
	strip  string
	query  query
	found  ref
	below  bool // the path lies below strip

	interpretations []interpretation
	arena           []byte // holds the bytes of the readings
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

// ambiguous looks at every reading in turn and at what the steps make of it.
func (x *ambiguityChecker) ambiguous() bool {
	defer func() { // keep no request's memory alive in the pool
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

// agrees says that the reading belongs to the path's own route and lies below
// the stripped prefix as the path does, with the same remainder.
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

// apply adds the reading that s makes of r when it is a new one. It is false
// when the bounds are reached.
func (x *ambiguityChecker) apply(s *normalizer, r interpretation) bool {
	if !s.changes(r.path) { // nor, then, does it change rest, which is its end
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

// store puts what s makes of p into the arena. A slice given out stays valid
// when the arena grows: it then refers to the memory before.
func (x *ambiguityChecker) store(s *normalizer, p []byte) []byte {
	from := len(x.arena)
	x.arena = s.apply(x.arena, p)
	return x.arena[from:]
}

// cutRaw takes the prefix off byte for byte, as package forward does.
func cutRaw(path []byte, strip string) (rest []byte, below bool) {
	if strip == "" || len(path) < len(strip) || string(path[:len(strip)]) != strip {
		return nil, false
	}
	return remainder(path[len(strip):])
}

// cutDecoded takes the prefix off as an upstream would that knows "%61" for "a".
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

// Normalise appends to dst what an upstream that takes every step makes of the
// path: decoded once, overlong characters replaced, backslashes turned,
// parameters cut, slashes merged, dot segments removed. It is one reading
// among many, for display; whether a path is safe to forward is Ambiguous's
// to say.
func Normalise(dst, path []byte) []byte {
	p := path
	for _, apply := range [...]func(dst, path []byte) []byte{
		decodeAll, foldOverlong, turnBackslashes, cutParams, mergeSlashes, removeDots,
	} {
		p = apply(nil, p)
	}
	return append(dst, p...)
}

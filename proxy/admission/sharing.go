package admission

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Sharing is which requests share a rate limit, or the pause that a 429 asks for.
type Sharing struct {
	Route  bool   // all of the route
	Header string // those with the same value of this header; "" for none
	Model  bool   // those with the same model in the path or the body; with Header, the same value of both
}

// None reports whether nothing is chosen.
func (s Sharing) None() bool { return s == Sharing{} }

// ByValue reports whether only requests with equal values share.
func (s Sharing) ByValue() bool { return s.Header != "" || s.Model }

// String returns the choice as in settings; "" if there is none.
func (s Sharing) String() string {
	switch {
	case s.Route:
		return "route"
	case s.Header == "" && s.Model:
		return "json:model"
	case s.Model:
		return "header:" + s.Header + ",json:model"
	case s.Header != "":
		return "header:" + s.Header
	}
	return ""
}

// Key returns what requests with the values of r share: seed, with a hash of each value. It is the
// same in every process with this seed. model is the one that r names, nil if it names none. complete
// is false if r lacks a value.
func (s *Sharing) Key(seed [sha256.Size]byte, r *http1.Request, model []byte) (key uint64, complete bool) {
	complete = true
	if s.Header != "" {
		value, ok := r.Lookup(s.Header)
		if complete = ok; ok {
			seed = Hash(seed, value)
		}
	}
	if s.Model && model != nil {
		seed = Hash(seed, model)
	}
	return binary.BigEndian.Uint64(seed[:]), complete && !(s.Model && model == nil)
}

// Hash returns seed with a value. The hash is cryptographic, so that no client can find a value that
// collides with another. It does not allocate.
func Hash(seed [sha256.Size]byte, value []byte) [sha256.Size]byte {
	var buf [512]byte
	for {
		n := min(len(value), len(buf)-len(seed))
		seed = sha256.Sum256(append(append(buf[:0], seed[:]...), value[:n]...))
		if value = value[n:]; len(value) == 0 {
			return seed
		}
	}
}

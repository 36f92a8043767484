package forward

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// RandomIDLen is the length of a random id: 128 bits in hexadecimal.
const RandomIDLen = 32

// maxRequestID bounds an id that is taken over from a client, in bytes: it goes
// into every log line and to the upstream.
const maxRequestID = 128

// isIDByte: what an id taken over may have. That covers UUIDs, ULIDs, base64 in
// both alphabets, trace ids and "Root=1-..." and leaves out all that means
// something to logs, shells, JSON, HTML or lists.
var isIDByte = func() (t [256]bool) {
	for c := range 256 {
		t[c] = isAlnum(byte(c))
	}
	for _, c := range []byte("-._~+/=:@|") {
		t[c] = true
	}
	return t
}()

// RequestID gives the id of the request: its first X-Request-Id when that has 1 to
// 128 letters, digits and -._~+/=:@| alone, a span of the request; else a random
// one, appended to scratch. Nothing is allocated when scratch has room for
// RandomIDLen bytes.
func RequestID(r *http1.Request, scratch []byte) []byte {
	if id := r.Get(http1.XRequestID); isRequestID(id) {
		return id
	}
	return AppendRandomID(scratch)
}

func isRequestID(id []byte) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for _, c := range id {
		if !isIDByte[c] {
			return false
		}
	}
	return true
}

// AppendRandomID appends RandomIDLen hexadecimal digits: 128 random bits from the
// runtime's ChaCha8 generators, seeded by the system. Two of n ids are equal with
// a probability of about n²/2^129. It is safe for concurrent use.
func AppendRandomID(dst []byte) []byte {
	const low = 0x0f0f0f0f0f0f0f0f
	a, b := rand.Uint64(), rand.Uint64()
	dst = binary.LittleEndian.AppendUint64(dst, hexDigits(a&low))
	dst = binary.LittleEndian.AppendUint64(dst, hexDigits(a>>4&low))
	dst = binary.LittleEndian.AppendUint64(dst, hexDigits(b&low))
	return binary.LittleEndian.AppendUint64(dst, hexDigits(b>>4&low))
}

// hexDigits makes each byte of n, which is below 16, the digit for it: 6 carries
// what is above 9 into the high half, and from '9'+1 to 'a' it is 39 more. All
// eight at once, as every request gets an id.
func hexDigits(n uint64) uint64 {
	const ones = 0x0101010101010101
	letters := (n + 6*ones) >> 4 & ones
	return n + '0'*ones + letters*('a'-'9'-1)
}

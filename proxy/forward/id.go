package forward

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// RandomIDLen is the length of a random id: 128 bits in hexadecimal.
const RandomIDLen = 32

// maxRequestID limits the length of a client's id, in bytes: it appears in every log line
// and is sent to the upstream.
const maxRequestID = 128

// isIDByte marks the bytes allowed in a client's id. They cover UUIDs, ULIDs, base64 in
// both alphabets, trace ids and "Root=1-...". They exclude every byte with a meaning in
// logs, shells, JSON, HTML or lists.
var isIDByte = func() (t [256]bool) {
	for c := range 256 {
		t[c] = isAlnum(byte(c))
	}
	for _, c := range []byte("-._~+/=:@|") {
		t[c] = true
	}
	return t
}()

// RequestID returns the id of the request. That is its first X-Request-Id, a span of the
// request, if it has 1 to 128 letters, digits and -._~+/=:@| alone. Otherwise it is a
// random id, appended to scratch. It does not allocate if scratch has room for RandomIDLen
// bytes.
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

// AppendRandomID appends RandomIDLen hexadecimal digits: 128 random bits from the runtime's
// ChaCha8 generators, seeded by the system. Two of n ids are equal with a probability of
// about n²/2^129. It is safe for concurrent use.
func AppendRandomID(dst []byte) []byte {
	const low = 0x0f0f0f0f0f0f0f0f
	a, b := rand.Uint64(), rand.Uint64()
	dst = binary.LittleEndian.AppendUint64(dst, hexDigits(a&low))
	dst = binary.LittleEndian.AppendUint64(dst, hexDigits(a>>4&low))
	dst = binary.LittleEndian.AppendUint64(dst, hexDigits(b&low))
	return binary.LittleEndian.AppendUint64(dst, hexDigits(b>>4&low))
}

// hexDigits converts each byte of n, which is below 16, to its digit. Adding 6 carries
// values above 9 into the high half, and from '9'+1 to 'a' are 39 more. It converts all
// eight at once, since every request gets an id.
func hexDigits(n uint64) uint64 {
	const ones = 0x0101010101010101
	letters := (n + 6*ones) >> 4 & ones
	return n + '0'*ones + letters*('a'-'9'-1)
}

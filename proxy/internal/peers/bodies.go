package peers

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// LargeSize is larger than all socket buffers, in bytes.
const LargeSize = 64 << 20

// Pattern is n bytes that differ from their shifted selves.
type Pattern struct{ at, N int }

func (p *Pattern) Read(b []byte) (int, error) {
	if p.at == p.N {
		return 0, io.EOF
	}
	n := min(len(b), p.N-p.at)
	copy(b[:n], patternBlock[p.at%251:])
	n = min(n, len(patternBlock)-p.at%251)
	p.at += n
	return n, nil
}

var patternBlock = func() []byte {
	b := make([]byte, 251*1024)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}()

// OneOf draws from what is given.
func OneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// RandomBytes returns n random bytes.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// Chunks is body in the chunked coding, in chunks of these sizes.
func Chunks(body []byte, sizes ...int) string {
	var b strings.Builder
	for i := 0; len(body) > 0; i++ {
		n := min(sizes[i%len(sizes)], len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n\r\n")
	return b.String()
}

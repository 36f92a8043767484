package tokens

// A string of dataRun bytes without a space or punctuation is no text but data: an image, sound or a
// file in base64. A vendor counts what it shows, not its length.
const (
	dataRun = 512
	// dataTokens is what such data counts. Source: Anthropic, "Vision": about 1600 tokens for the
	// largest image that is not scaled down; OpenAI, "Images and vision": 1445 for 2048 x 4096.
	dataTokens = 1600
)

// size measures how much of a body is text and how much data.
type size struct {
	read int64 // bytes so far
	data int64 // bytes of them in pieces of data
	n    int64 // pieces of data
	run  int64 // bytes since the last space or punctuation
}

// add measures the next piece of the body.
func (s *size) add(piece []byte) {
	s.read += int64(len(piece))
	for _, c := range piece {
		if !dataByte[c] {
			s.run = 0
			continue
		}
		switch s.run++; {
		case s.run == dataRun:
			s.data += dataRun
			s.n++
		case s.run > dataRun:
			s.data++
		}
	}
}

// dataByte has the alphabets of base64 (RFC 4648 sections 4 and 5), and the backslash: JSON may
// escape the slash, and line ends within the data.
var dataByte = func() (all [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\\" {
		all[c] = true
	}
	return all
}()

// tokens estimates the tokens of a body of that many bytes, of which the beginning was measured. If
// that ends within data, the rest is data. Otherwise it is like the beginning.
func (s *size) tokens(length int64) int64 {
	length = max(length, s.read)
	text := length - s.data
	switch rest := length - s.read; {
	case s.run >= dataRun:
		text -= rest
	case s.read > 0:
		text -= int64(float64(rest) * float64(s.data) / float64(s.read))
	}
	return Estimate(text) + s.n*dataTokens
}

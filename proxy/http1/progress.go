package http1

import "bytes"

// headerProgress remembers, while a header section is incomplete, how far it was searched for its end. Heads are read from their start each
// time, which is simplest to trust; to keep that linear in the bytes received, they are read again only when the end has come
// or when there are twice as many bytes as at the last reading. Between readings each new byte is looked at once. What is
// remembered can only delay a reading, never change what is read, so a forgotten Reset costs time and not correctness.
type headerProgress struct {
	searched   int // bytes in which there is no end of a header section; 0 at the start of a header section
	lastParsed int // bytes there were at the last full reading
}

// shouldParse reports whether buf should be read from its start now. Nearly every head is whole at once, and asks no more than this.
func (p *headerProgress) shouldParse(buf []byte) bool {
	return p.searched == 0 || len(buf) < p.searched || p.hasEndOrDoubled(buf)
}

// hasEndOrDoubled looks at what came since, and reports whether it holds the end of a header section or is as much again as was read before.
func (p *headerProgress) hasEndOrDoubled(buf []byte) bool {
	for i := p.searched; i < len(buf); i++ {
		k := bytes.IndexByte(buf[i:], '\n')
		if k < 0 {
			break
		}
		i += k
		if i >= 1 && buf[i-1] == '\n' || i >= 2 && buf[i-1] == '\r' && buf[i-2] == '\n' {
			return true
		}
	}
	p.searched = len(buf)
	return len(buf) >= 2*p.lastParsed
}

// incomplete notes that buf was read and holds no whole head.
func (p *headerProgress) incomplete(buf []byte) { p.searched, p.lastParsed = len(buf), len(buf) }

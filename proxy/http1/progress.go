package http1

import "bytes"

// headerProgress records, for an incomplete header section, how far it was searched for its
// end. Header sections are parsed from their start each time, which is the simplest correct
// way. To keep that linear in the bytes received, they are parsed again only when the end
// has arrived, or when there are twice as many bytes as at the last parse. In between each
// new byte is examined once. The state can only delay a parse, never change its result, so
// a missing Reset costs time but not correctness.
type headerProgress struct {
	searched   int // bytes without the end of a header section; 0 at its start
	lastParsed int // bytes available at the last full parse
}

// shouldParse reports whether buf should be parsed from its start now. Nearly every header
// section arrives at once and needs only this check.
func (p *headerProgress) shouldParse(buf []byte) bool {
	return p.searched == 0 || len(buf) < p.searched || p.hasEndOrDoubled(buf)
}

// hasEndOrDoubled searches the new bytes. It reports whether they contain the end of a
// header section, or buf has doubled since the last parse.
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

// incomplete records that buf was parsed and contains no complete header section.
func (p *headerProgress) incomplete(buf []byte) { p.searched, p.lastParsed = len(buf), len(buf) }

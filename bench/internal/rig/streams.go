package rig

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
)

// Reading is a request as somebody read it.
type Reading struct {
	Method, Target, Host, Body string // Body: its length and hash
}

func (r Reading) String() string {
	return fmt.Sprintf("%s %.60q at %q, body %s", r.Method, r.Target, r.Host, r.Body)
}

// ReadingOf reads req to its end. An error says that it was cut off, or is none.
func ReadingOf(req *http.Request) (Reading, error) {
	h := sha256.New()
	n, err := io.Copy(h, req.Body)
	return Reading{req.Method, req.RequestURI, req.Host, fmt.Sprintf("%d:%x", n, h.Sum(nil)[:8])}, err
}

// Message is one request in the bytes of a connection.
type Message struct {
	Reading
	Raw []byte // a part of what was split
}

// Split reads the bytes of a connection as net/http does. rest is a request
// that is cut off, fault why what is there is none at all.
func Split(all []byte) (got []Message, rest []byte, fault error) {
	at := 0
	under := bytes.NewReader(all)
	r := bufio.NewReader(under)
	for at < len(all) {
		req, err := http.ReadRequest(r)
		if err != nil && !bytes.Contains(all[at:], []byte("\r\n\r\n")) {
			return got, all[at:], nil
		}
		if err != nil {
			return got, all[at:], err
		}
		as, err := ReadingOf(req)
		if err == io.ErrUnexpectedEOF || err != nil && !bytes.HasSuffix(all, []byte("\r\n\r\n")) { // in a body, or in its trailers
			return got, all[at:], nil
		}
		if err != nil {
			return got, all[at:], err
		}
		to := len(all) - under.Len() - r.Buffered()
		got = append(got, Message{as, all[at:to]})
		at = to
	}
	return got, nil, nil
}

// shards are what mutations put in: where parsers were once found to differ.
var shards = []string{
	"\r\n", "\n", "\r", "\x00", "\t", " ", ":", ",", ";", "0", "\x0b", "\x85", "\xc2\xa0", "\r\n ", "\r\n\r\n", "0\r\n\r\n", "0\n\n", "%00", "%0d%0a", "#", "?", "\\", "//", "../",
	"Content-Length: 5\r\n", "Content-Length: 0\r\n", "Content-Length: 05\r\n", "Content-Length: 5, 5\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n",
	"Transfer-Encoding : chunked\r\n", "Transfer-Encoding:\tchunked\r\n", "transfer_encoding: chunked\r\n", "Connection: close\r\n", "Connection: content-length\r\n", "Expect: 100-continue\r\n",
	"Host: b.example\r\n", "Upgrade: x\r\nConnection: upgrade\r\n", "TE: trailers\r\n", "Trailer: X\r\n", "HTTP/1.0", "HTTP/1.1", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "5\r\nhello\r\n", ";a=\"b\r\n\"",
}

// Mutate changes a few places of b and gives the result; b itself is no longer of use.
func Mutate(r *rand.Rand, b []byte) []byte {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(b) + 1)
		switch r.IntN(6) {
		case 0, 1:
			b = bytes.Join([][]byte{b[:at], []byte(shards[r.IntN(len(shards))]), b[at:]}, nil)
		case 2:
			to := min(len(b), at+1+r.IntN(4))
			b = bytes.Join([][]byte{b[:at], b[to:]}, nil)
		case 3:
			if at < len(b) {
				b[at] = byte(r.IntN(256))
			}
		case 4: // a line twice, or at another place
			lines := bytes.SplitAfter(b, []byte("\r\n"))
			i, j := r.IntN(len(lines)), r.IntN(len(lines))
			lines = append(lines[:j:j], append([][]byte{lines[i]}, lines[j:]...)...)
			b = bytes.Join(lines, nil)
		default:
			if at < len(b) {
				b[at] ^= 0x20 // the case of a letter
			}
		}
	}
	return b
}

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// stallTime is longer than the proxy's request timeout.
const stallTime = 6 * time.Second

// mostRead bounds the time for one request's body, so that a proxy that sends
// neither bytes nor an end is found.
const mostRead = 20 * time.Second

// perform does what the act says. It says whether the connection can serve
// another request.
func (x *exchange) perform() bool {
	if x.act.kind == resetsEarly {
		return x.reset()
	}
	if x.act.early && x.act.has() && x.req.Body != http.NoBody {
		return x.performEarly()
	}
	x.c.SetReadDeadline(time.Now().Add(mostRead))
	if x.req.Header.Get("Expect") != "" {
		io.WriteString(x.c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if !x.readBody() {
		return false
	}
	x.c.SetReadDeadline(time.Time{})
	if x.act.delay > 0 {
		x.sleep(x.act.delay)
	}
	return x.answer()
}

// performEarly answers first and reads the body then. The proxy may end the
// connection meanwhile.
func (x *exchange) performEarly() bool {
	x.e.note(x.n, func(a *attempt) { a.early = true })
	if !x.answer() {
		return false // unread bytes make this a reset, which may take the response with it
	}
	x.c.SetReadDeadline(time.Now().Add(mostRead))
	defer x.c.SetReadDeadline(time.Time{})
	again := x.readBody()
	x.e.note(x.n, func(a *attempt) { a.whole = again })
	return again
}

func (x *exchange) answer() bool {
	switch x.act.kind {
	case resets:
		return x.reset()
	case stalls:
		x.sleep(stallTime)
		return false
	case malforms:
		io.WriteString(x.c, malformedHeads[x.act.malformed])
		return false
	case cutsHead:
		head := x.head()
		x.c.Write(head[:1+x.r.IntN(len(head)-2)])
		if one(x.r, 2) {
			return x.reset()
		}
		return false
	case cuts:
		x.writeCut()
		return false
	}
	return x.writeWhole()
}

// reset ends the connection with a reset.
func (x *exchange) reset() bool {
	if tcp, ok := x.c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	return false
}

// sleep ends early with the run.
func (x *exchange) sleep(d time.Duration) {
	select {
	case <-x.u.ending:
	case <-time.After(d):
	}
}

// head is the response headers, with the 1xx heads before it.
func (x *exchange) head() []byte {
	a := &x.act
	var b bytes.Buffer
	for _, status := range a.interim {
		fmt.Fprintf(&b, "HTTP/1.1 %d Soak\r\nLink: </style>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n", status)
	}
	version := 1
	if a.framing == byHTTP10 {
		version = 0
	}
	fmt.Fprintf(&b, "HTTP/1.%d %d Soak\r\n%s: a\r\n%s: %d\r\n%s: b\r\n", version, a.status, fieldTwice, fieldAttempt, x.n, fieldTwice)
	fmt.Fprintf(&b, "Date: %s\r\n", time.Now().UTC().Format(http.TimeFormat))
	switch {
	case a.retry == "date":
		fmt.Fprintf(&b, "Retry-After: %s\r\n", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
	case a.retry != "":
		fmt.Fprintf(&b, "Retry-After: %s\r\n", a.retry)
	}
	x.framingFields(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}

func (x *exchange) framingFields(b *bytes.Buffer) {
	a := &x.act
	switch a.framing {
	case byLength, byHTTP10:
		fmt.Fprintf(b, "Content-Length: %d\r\n", a.body.size)
	case byChunks:
		b.WriteString("Transfer-Encoding: chunked\r\n")
		if a.trailer {
			fmt.Fprintf(b, "Trailer: %s\r\n", fieldSum)
		}
	}
	if a.after == closesSaid || a.framing == byClose && one(x.r, 2) {
		b.WriteString("Connection: close\r\n")
	}
}

// bodyless: no body follows the head, whatever it says.
func (x *exchange) bodyless() bool { return x.req.Method == "HEAD" || x.act.framing == noContent }

// writeWhole writes the whole response.
func (x *exchange) writeWhole() bool {
	x.e.note(x.n, func(a *attempt) { a.whole = !a.early }) // before the client can have it
	if x.write(x.act.body.size, true) != nil {
		x.e.note(x.n, func(a *attempt) { a.whole = false })
		return false
	}
	if x.act.framing == byClose && !x.bodyless() || x.act.framing == byHTTP10 {
		return false
	}
	return x.afterwards()
}

// writeCut ends the response somewhere in its body, or, when chunked, just
// before its last chunk. A HEAD's answer has none, so it is whole.
func (x *exchange) writeCut() {
	if x.bodyless() {
		x.writeWhole()
		return
	}
	size := x.act.body.size
	if x.act.framing == byChunks {
		size++
	}
	x.write(int64(x.act.cutAt*float64(size)), false)
	if x.act.asReset {
		x.reset()
	}
}

// write sends the head and the first upTo bytes of the body; with end also
// what ends it, and whatever comes after that unasked.
func (x *exchange) write(upTo int64, end bool) error {
	if err := x.send(x.head(), end && (x.bodyless() || upTo == 0 && x.act.framing != byChunks)); err != nil || x.bodyless() {
		return err
	}
	a, off := &x.act, int64(0)
	step := 32 << 10
	if a.trickles {
		step = int(a.body.size/8) + 1
	}
	err := a.body.pieces(0, upTo, step, func(p []byte) error {
		if a.trickles {
			x.sleep(10 * time.Millisecond)
		}
		off += int64(len(p))
		return x.writePiece(p, end && off == upTo)
	})
	if err != nil || a.framing != byChunks || !end {
		return err
	}
	return x.send(x.lastChunk(), true)
}

func (x *exchange) lastChunk() []byte {
	if x.act.trailer {
		return []byte("0\r\n" + fieldSum + ": " + x.act.body.sum() + "\r\n\r\n")
	}
	return []byte("0\r\n\r\n")
}

// poison is a response to no request. It comes in one small write with the
// last byte of the response, so that it is there before the proxy can use the
// connection again: a little later, nothing could tell it from a response.
const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"

// send writes p; last says that the response ends with it.
func (x *exchange) send(p []byte, last bool) error {
	if !last || x.act.after != saysMore {
		_, err := x.c.Write(p)
		return err
	}
	end := len(p) - 1
	if _, err := x.c.Write(p[:end]); err != nil {
		return err
	}
	x.sleep(2 * time.Millisecond) // until what is before it has left, so that the rest goes as one segment
	_, err := x.c.Write(append([]byte{p[end]}, poison...))
	return err
}

func (x *exchange) writePiece(p []byte, last bool) error {
	if x.act.framing != byChunks {
		return x.send(p, last)
	}
	framed := append(strconv.AppendInt(nil, int64(len(p)), 16), "\r\n"...)
	return x.send(append(append(framed, p...), "\r\n"...), false)
}

// afterwards does what the act says about the connection after the response.
func (x *exchange) afterwards() bool {
	switch x.act.after {
	case closesSaid, closesAtOnce, saysMore:
		return false
	case closesSilently:
		x.sleep(time.Duration(x.r.IntN(20)) * time.Millisecond)
		return false
	case says408:
		x.sleep(time.Duration(x.r.IntN(3)) * time.Millisecond)
		io.WriteString(x.c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false
	}
	return true
}

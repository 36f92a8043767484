package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// stallTime is longer than the proxy's request timeout.
const stallTime = 6 * time.Second

// perform does what the script says. It reports whether the connection can serve another request.
func (x *exchange) perform() bool {
	switch a := &x.script; {
	case a.kind == resetsEarly:
		rig.Reset(x.Conn)
		return false
	case a.early && a.has() && x.req.Body != http.NoBody:
		return x.performEarly()
	}
	if x.req.Header.Get("Expect") != "" {
		_, _ = io.WriteString(x, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if !x.readBody() {
		return false
	}
	x.sleep(x.script.delay)
	return x.respond()
}

// performEarly responds first and reads the body then. The proxy may end the connection meanwhile.
func (x *exchange) performEarly() bool {
	x.r.note(x.n, func(a *attempt) { a.early = true })
	if !x.respond() {
		return false // unread bytes make this a reset, which may take the response with it
	}
	again := x.readBody()
	x.r.note(x.n, func(a *attempt) { a.whole = again })
	return again
}

func (x *exchange) respond() bool {
	a := &x.script
	switch {
	case a.kind == resets:
		rig.Reset(x.Conn)
	case a.kind == stalls:
		x.sleep(stallTime)
	case a.kind == malforms:
		_, _ = io.WriteString(x, a.nonsense)
	case a.kind == cutsHead:
		headers := x.headers()
		_, _ = x.Write(headers[:1+x.rand.IntN(len(headers)-2)])
		if one(x.rand, 2) {
			rig.Reset(x.Conn)
		}
	case a.kind == cuts && !a.bodyless(x.req.Method):
		x.respondCut()
	default:
		return x.respondWhole()
	}
	return false
}

// sleep ends early with the run.
func (x *exchange) sleep(d time.Duration) { rig.Sleep(x.ctx, d) }

// headers are the response headers, with the 1xx responses before them.
func (x *exchange) headers() []byte {
	a := &x.script
	var b bytes.Buffer
	for _, status := range a.interim {
		fmt.Fprintf(&b, "HTTP/1.1 %d Soak\r\nLink: </style>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n", status)
	}
	minor := 1
	if a.framing == byHTTP10 {
		minor = 0
	}
	fmt.Fprintf(&b, "HTTP/1.%d %d Soak\r\n%s: a\r\n%s: %d\r\n%s: b\r\n", minor, a.status, fieldTwice, fieldAttempt, x.n, fieldTwice)
	now := time.Now().UTC()
	fmt.Fprintf(&b, "Date: %s\r\n", now.Format(http.TimeFormat))
	switch a.retry {
	case "":
	case "date":
		fmt.Fprintf(&b, "Retry-After: %s\r\n", now.Add(time.Second).Format(http.TimeFormat))
	default:
		fmt.Fprintf(&b, "Retry-After: %s\r\n", a.retry)
	}
	switch a.framing {
	case byLength, byHTTP10:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", a.body.size)
	case byChunks:
		b.WriteString("Transfer-Encoding: chunked\r\n")
		if a.body.trailer {
			fmt.Fprintf(&b, "Trailer: %s\r\n", fieldSum)
		}
	}
	if a.after == closesSaid || a.framing == byClose && one(x.rand, 2) {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// respondCut ends the response somewhere in its body, or, if chunked, perhaps just before its last
// chunk.
func (x *exchange) respondCut() {
	size := x.script.body.size
	if x.script.body.chunked {
		size++
	}
	_ = x.write(x, int64(x.script.cutAt*float64(size)))
	if x.script.asReset {
		rig.Reset(x.Conn)
	}
}

func (x *exchange) respondWhole() bool {
	x.r.note(x.n, func(a *attempt) { a.whole = !a.early }) // before the client can have it
	write := x.write
	if x.script.after == saysMore {
		write = x.writeMore
	}
	if write(x, whole) != nil {
		x.r.note(x.n, func(a *attempt) { a.whole = false })
		return false
	}
	if x.script.framing == byClose && !x.script.bodyless(x.req.Method) || x.script.framing == byHTTP10 {
		return false
	}
	switch x.script.after {
	case keeps:
		return true
	case closesSilently:
		x.sleep(time.Duration(x.rand.IntN(20)) * time.Millisecond)
	case says408:
		x.sleep(time.Duration(x.rand.IntN(3)) * time.Millisecond)
		_, _ = io.WriteString(x, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
	return false
}

// write sends the headers and the first upTo bytes of the body.
func (x *exchange) write(to io.Writer, upTo int64) error {
	step := 32 << 10
	if x.script.trickles {
		to, step = slowWriter{to, 10 * time.Millisecond}, int(x.script.body.size/8)+1
	}
	_, err := to.Write(x.headers())
	if err == nil && !x.script.bodyless(x.req.Method) {
		err = x.script.body.write(to, upTo, step)
	}
	return err
}

// poison is a response to no request.
const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"

// writeMore sends the response and then poison, which comes in one small write with the last byte of
// the response, so that it is there before the proxy can use the connection again: a little later,
// nothing could tell it from a response.
func (x *exchange) writeMore(to io.Writer, upTo int64) error {
	var all bytes.Buffer
	_ = x.write(&all, upTo)
	last := all.Len() - 1
	if _, err := to.Write(all.Bytes()[:last]); err != nil {
		return err
	}
	x.sleep(2 * time.Millisecond) // until what is before it has left, so that the rest goes as one segment
	_, err := to.Write(append(all.Bytes()[last:], poison...))
	return err
}

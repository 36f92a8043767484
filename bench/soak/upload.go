package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// clientsHost is the Host of every request. It is not the proxy's own name, so the proxy has to keep
// it.
const clientsHost = "soak.test"

// small is a body size up to which a request goes out in one piece.
const small = 4096

// upload is a request on its way to the proxy, or some in one piece, in a goroutine of its own: the
// response may come before the request is whole.
type upload struct {
	first    bytes.Buffer          // what is sent at once
	rest     func(io.Writer) error // sends what follows; nil: nothing
	goAhead  chan struct{}         // the proxy said 100 Continue
	patience time.Duration
	begun    time.Time
	done     chan struct{}
	err      error // of writing, nil if all was written; read after done
}

func (w *upload) begin(conn net.Conn) {
	w.begun, w.done = time.Now(), make(chan struct{})
	go func() {
		defer close(w.done)
		_ = conn.SetWriteDeadline(time.Now().Add(2 * w.patience))
		_, w.err = conn.Write(w.first.Bytes())
		if w.err == nil && w.rest != nil {
			w.err = w.rest(conn)
		}
	}()
}

// over waits for the goroutine, which a closed connection ends, and reports whether it has ended.
func (w *upload) over(limit time.Duration) bool {
	select {
	case <-w.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// wasReset reports whether the request met a reset. The kernel reports one only once: if the writer
// gets it, the reader sees a mere end of the connection.
func (w *upload) wasReset() bool { return w.over(time.Second) && errors.Is(w.err, syscall.ECONNRESET) }

// render prepares what is sent of the request: the headers, and the body with them if it is small
// and the client just behaves.
func (w *upload) render(p *plan) {
	w.headers(p)
	if p.body.size <= small && (p.behavior == behaves || p.behavior == readsSlowly) && !p.expect {
		_ = p.body.write(&w.first, whole, small)
		return
	}
	w.rest = func(conn io.Writer) error { return w.sendBody(conn, p) }
}

func (w *upload) headers(p *plan) {
	b := &w.first
	fmt.Fprintf(b, "%s %s HTTP/1.%d\r\nHost: %s\r\n%s: a\r\n", p.method, p.path(), p.minor, clientsHost, fieldTwice)
	fmt.Fprintf(b, "%s: %d\r\nUser-Agent: soak\r\nAccept: */*\r\n%s: b\r\n", fieldID, p.id, fieldTwice)
	if p.keyed {
		fmt.Fprintf(b, "Idempotency-Key: soak-%d\r\n", p.id)
	}
	switch {
	case p.body.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case p.mayHaveBody():
		fmt.Fprintf(b, "Content-Length: %d\r\n", p.body.size)
	}
	if p.body.trailer {
		fmt.Fprintf(b, "Trailer: %s\r\n", fieldSum)
	}
	if p.expect {
		b.WriteString("Expect: 100-continue\r\n")
	}
	b.WriteString(p.connection() + "\r\n")
}

// connection is the Connection field, with TE: trailers and a field that must not be forwarded.
func (p *plan) connection() string {
	const hop = "TE, X-Hop\r\nTE: trailers\r\nX-Hop: 1\r\n"
	switch {
	case p.minor == 0 && p.close:
		return ""
	case p.minor == 0:
		return "Connection: keep-alive\r\n"
	case p.close:
		return "Connection: close, " + hop
	}
	return "Connection: " + hop
}

// sendBody sends the body as the plan says.
func (w *upload) sendBody(conn io.Writer, p *plan) error {
	if p.expect {
		select {
		case <-w.goAhead:
		case <-time.After(200 * time.Millisecond): // send it anyway, as RFC 9110 section 10.1.1 says
		}
	}
	switch p.behavior {
	case cutsUpload:
		if err := p.body.write(conn, int64(p.when*float64(p.body.size)), 16<<10); err != nil {
			return err
		}
		return conn.(interface{ CloseWrite() error }).CloseWrite()
	case writesSlowly:
		return p.body.write(slowWriter{conn, 40 * time.Millisecond}, whole, int(p.body.size/6)+1)
	}
	return p.body.write(conn, whole, 48<<10)
}

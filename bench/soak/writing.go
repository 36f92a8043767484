package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"
)

// writing is a request on its way to the proxy, in a goroutine of its own: the
// answer may come before the request is whole.
type writing struct {
	t       *team
	bytes   bytes.Buffer // what is sent at once
	rest    func(io.Writer) error
	goAhead chan struct{} // the proxy said 100 Continue
	begun   time.Time
	done    chan struct{}
	err     error // of writing; read after done
	whole   bool  // all was written; read after done
}

// startWriting begins to send a request.
func (c *client) startWriting(p *plan) *writing {
	w := &writing{t: c.t, goAhead: make(chan struct{}, 1)}
	w.render(p)
	w.begin(c.conn)
	return w
}

func (w *writing) begin(conn net.Conn) {
	w.begun, w.done = time.Now(), make(chan struct{})
	go func() {
		defer close(w.done)
		conn.SetWriteDeadline(time.Now().Add(2 * w.t.patience))
		_, w.err = conn.Write(w.bytes.Bytes())
		if w.err == nil && w.rest != nil {
			w.err = w.rest(conn)
		}
		w.whole = w.err == nil
	}()
}

// wait waits for the goroutine, which a closed connection ends.
func (w *writing) wait(c *client) {
	select {
	case <-w.done:
	case <-time.After(3 * w.t.patience):
		c.t.ledger.violation("stuck write", "a request could not be sent in %v", 3*w.t.patience)
	}
}

// wasReset says whether the request met a reset. The kernel tells of one only
// once: when the writer is told, the reader sees a mere end of the connection.
func (w *writing) wasReset() bool {
	select {
	case <-w.done:
		return errors.Is(w.err, syscall.ECONNRESET)
	case <-time.After(time.Second):
		return false
	}
}

// small is a body size up to which a request goes out in one piece.
const small = 4096

// render prepares what is sent of the request: the head, and the body with it
// when it is small and the client just behaves.
func (w *writing) render(p *plan) {
	if p.conduct == breaksRules {
		w.bytes.WriteString(rules[p.broken].text(p))
		return
	}
	w.head(p)
	if p.body.size <= small && (p.conduct == behaves || p.conduct == readsSlowly) && !p.expect {
		w.body(&w.bytes, p, p.body.size, small)
		return
	}
	if p.mayHaveBody() {
		w.rest = func(conn io.Writer) error { return w.sendBody(conn, p) }
	}
}

func (w *writing) head(p *plan) {
	b := &w.bytes
	fmt.Fprintf(b, "%s %s HTTP/1.%d\r\nHost: %s\r\n%s: a\r\n", p.method, p.path(), p.minor, clientsHost, fieldTwice)
	fmt.Fprintf(b, "%s: %d\r\nUser-Agent: soak\r\nAccept: */*\r\n%s: b\r\n", fieldID, p.id, fieldTwice)
	if p.keyed {
		fmt.Fprintf(b, "Idempotency-Key: soak-%d\r\n", p.id)
	}
	switch {
	case p.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case p.mayHaveBody():
		fmt.Fprintf(b, "Content-Length: %d\r\n", p.body.size)
	}
	if p.trailer {
		fmt.Fprintf(b, "Trailer: %s\r\n", fieldSum)
	}
	if p.expect {
		b.WriteString("Expect: 100-continue\r\n")
	}
	b.WriteString(p.connection())
	b.WriteString("\r\n")
}

// connection is the Connection field, with TE: trailers and a field that must
// not be forwarded.
func (p *plan) connection() string {
	switch {
	case p.minor == 0 && p.close:
		return ""
	case p.minor == 0:
		return "Connection: keep-alive\r\n"
	case p.close:
		return "Connection: close, TE, X-Hop\r\nTE: trailers\r\nX-Hop: 1\r\n"
	}
	return "Connection: TE, X-Hop\r\nTE: trailers\r\nX-Hop: 1\r\n"
}

// sendBody sends the body as the plan says.
func (w *writing) sendBody(conn io.Writer, p *plan) error {
	if p.expect {
		select {
		case <-w.goAhead:
		case <-time.After(200 * time.Millisecond): // send it anyway, as RFC 9110 section 10.1.1 says
		}
	}
	if p.conduct == cutsUpload {
		if err := w.body(conn, p, int64(p.when*float64(p.body.size)), 16<<10); err != nil {
			return err
		}
		return conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	step := 48 << 10
	if p.conduct == writesSlowly {
		step = int(p.body.size/6) + 1
		conn = slowWriter{conn}
	}
	return w.body(conn, p, p.body.size, step)
}

// slowWriter waits before each write.
type slowWriter struct{ io.Writer }

func (s slowWriter) Write(p []byte) (int, error) {
	pause(context.Background(), 40*time.Millisecond)
	return s.Writer.Write(p)
}

// body sends the first upTo bytes of the body, and its end if they are all.
func (w *writing) body(to io.Writer, p *plan, upTo int64, step int) error {
	err := p.body.pieces(0, upTo, step, func(piece []byte) error {
		w.t.up.Add(int64(len(piece)))
		if p.chunked {
			framed := append(strconv.AppendInt(nil, int64(len(piece)), 16), "\r\n"...)
			piece = append(append(framed, piece...), "\r\n"...)
		}
		_, err := to.Write(piece)
		return err
	})
	if err != nil || !p.chunked || upTo < p.body.size {
		return err
	}
	end := "0\r\n\r\n"
	if p.trailer {
		end = "0\r\n" + fieldSum + ": " + p.body.sum() + "\r\n\r\n"
	}
	_, err = io.WriteString(to, end)
	return err
}

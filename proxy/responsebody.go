package proxy

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// responseBody reads the body of the response whose head is in x.resp, free of
// its framing.
type responseBody struct {
	x         *exchange
	framing   http1.Framing
	left      int64
	chunked   http1.Chunked
	ended     bool
	prefix    []byte // decoded already, to be given first; owned here
	keepBelow int    // in the upstream's buffer: what is before it must stay
}

func (b *responseBody) reset() {
	x := b.x
	b.framing, b.left, b.keepBelow = x.resp.Body, x.resp.Body.Length, 0
	b.ended = b.framing.Kind == http1.BodyNone || b.framing.Kind == http1.BodyLength && b.left == 0
	if b.framing.Kind == http1.BodyChunked {
		b.chunked.Reset()
	}
}

// release gives the prefix back.
func (b *responseBody) release() {
	putBuffer(b.prefix)
	b.prefix = nil
}

func (b *responseBody) untilClose() bool { return b.framing.Kind == http1.BodyClose }

// next gives the next piece, valid until the next call; io.EOF at the proper
// end. errResponseCut: the upstream ended it early or sent nonsense.
// errClientGone: the client left meanwhile. A timeout is one of idle.
func (b *responseBody) next(idle time.Duration) ([]byte, error) {
	for !b.ended {
		if piece, err := b.buffered(); len(piece) > 0 || err != nil {
			return piece, err
		}
		if b.ended {
			break
		}
		if err := b.fill(idle); err != nil {
			return nil, err
		}
	}
	return nil, io.EOF
}

// buffered takes what is in the buffer already.
func (b *responseBody) buffered() ([]byte, error) {
	x := b.x
	have := x.up.Buf[x.upR:x.upW]
	switch b.framing.Kind {
	case http1.BodyLength:
		n := int(min(int64(len(have)), b.left))
		b.left -= int64(n)
		b.ended = b.left == 0
		x.upR += n
		return have[:n], nil
	case http1.BodyChunked:
		return b.decode(have)
	}
	x.upR = x.upW
	return have, nil
}

func (b *responseBody) decode(have []byte) ([]byte, error) {
	for len(have) > 0 {
		n, data, err := b.chunked.Next(have)
		b.x.upR += n
		have = have[n:]
		b.ended = b.chunked.Done()
		switch {
		case err != nil:
			return nil, errResponseCut
		case len(data) > 0:
			return data, nil
		case n == 0 || b.ended:
			return nil, nil
		}
	}
	return nil, nil
}

// fill reads more from the upstream.
func (b *responseBody) fill(idle time.Duration) error {
	x := b.x
	b.useLargeBuffer()
	rest := copy(x.up.Buf[b.keepBelow:], x.up.Buf[x.upR:x.upW])
	x.upR, x.upW = b.keepBelow, b.keepBelow+rest
	err := x.readUp(idle)
	switch {
	case err == nil:
		return nil
	case err == io.EOF && b.untilClose() && !x.resetWhileSplicing():
		b.ended = true
		return nil
	case errors.Is(err, errClientGone) || isTimeout(err):
		return err
	}
	return errResponseCut
}

// resetWhileSplicing says whether the connection was reset while the kernel moved the
// request's body, which a read may tell as a mere end; package sock knows of all other
// writes. A reset that follows the upstream's orderly end counts too: whether that end
// was the response's, nobody can say then. An upload still in flight is given up.
func (x *exchange) resetWhileSplicing() bool {
	if x.uploading() {
		x.stopPump()
	}
	return x.spliced && rawsocket.IsTCPClosed(x.up.Conn)
}

// useLargeBuffer moves to a large buffer when more than a first read is to come.
func (b *responseBody) useLargeBuffer() {
	up := b.x.up
	if b.keepBelow > 0 || len(up.Buf) >= largeBuffer || b.x.c.server.clients.underPressure() || b.framing.Kind == http1.BodyLength && b.left <= mediumBuffer {
		return
	}
	wide := getBuffer(largeBuffer)
	n := copy(wide, up.Buf[b.x.upR:b.x.upW])
	b.x.replaceUp(wide)
	b.x.upR, b.x.upW = 0, n
}

// rawTCP is the connection for the kernel to move bytes from and to, nil when
// there is none (TLS, unix sockets, tests in memory).
func rawTCP(c *upstream.Conn) *net.TCPConn {
	t, _ := c.Raw().(*net.TCPConn)
	return t
}

package proxy

import (
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/errorbody"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// writeWithin is how long a write may take for which there is room: mostly the time in which the machine
// is busy with others.
const writeWithin = time.Second

// goAwayFrames are the frames with which an HTTP/2 connection is refused: SETTINGS, and a GOAWAY that
// says that no stream was processed, so that the client may send its requests again (RFC 9113 section
// 6.8).
const goAwayFrames = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// turnAway responds to a client whose request was not read, and closes its connection. It does not
// wait.
func (s *Server) turnAway(n acceptedConn) {
	s.clients.turnedAway()
	s.noteTurnedAway()
	if n.tls {
		_ = n.nc.Close()
		return
	}
	s.sayNoRoom(n.nc)
}

// sayNoRoom closes the connection of a client to which nothing was written yet, with a 503. It does not
// wait.
func (s *Server) sayNoRoom(nc net.Conn) {
	defer nc.Close()
	tcp, is := nc.(*net.TCPConn)
	if !is {
		return
	}
	_ = tcp.SetWriteDeadline(time.Now().Add(writeWithin))
	_, _ = tcp.Write(s.noRoom())
	_ = tcp.CloseWrite()
	if raw, err := tcp.SyscallConn(); err == nil {
		discardArrived(raw)
	}
}

// errNoRoom is the error of a client that has to leave before its request was read.
var errNoRoom = errorbody.Error{Status: 503, Reason: http1.RefusalNoClientSlot.String(), Text: http1.RefusalNoClientSlot.Explain()}

// noRoom returns the response to a client that has to leave before its request was read.
func (s *Server) noRoom() []byte {
	headers, body := s.unread(errNoRoom)
	return appendOwn(nil, 503, append(headers, http1.NewHeader("Retry-After", "1"), http1.NewHeader("Connection", "close")), body)
}

// unread returns the headers and the body of an error response to a request that was not read, so that its
// route is not known. A client of a model's API may not read an error without a body, or one without an id;
// any other gets no body. The id is in no log.
func (s *Server) unread(e errorbody.Error) (headers []http1.Header, body []byte) {
	if !s.settings.Load().DefaultRoute.ModelAPI {
		return nil, nil
	}
	e.ID = string(forward.AppendRandomID(nil))
	headers = []http1.Header{
		http1.NewHeader("Content-Type", errorbody.ModelAPI.ContentType()),
		http1.NewHeader("Request-Id", e.ID), http1.NewHeader("X-Request-Id", e.ID),
		http1.NewHeader("X-Retryproxy-Reason", e.Reason),
	}
	return headers, e.Append(nil, errorbody.ModelAPI)
}

// appendOwn appends a response in HTTP/1.1 with the length of its body.
func appendOwn(dst []byte, status int, headers []http1.Header, body []byte) []byte {
	dst = fmt.Appendf(dst, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, h := range headers {
		dst = http1.AppendHeader(dst, string(h.Name), string(h.Value))
	}
	return append(fmt.Appendf(dst, "Content-Length: %d\r\n\r\n", len(body)), body...)
}

// discardArrived reads what has arrived, within bounds. To close a connection with unread bytes would
// reset it, and the client might lose the response.
func discardArrived(raw syscall.RawConn) {
	b := buffer.Get(buffer.Large)
	defer b.Put()
	space := b.Bytes()
	_ = raw.Read(func(fd uintptr) bool {
		for range 4 {
			if n, err := rawsocket.TryRead(fd, space); n <= 0 || err != nil {
				break
			}
		}
		return true
	})
}

// refuseHTTP2 ends an HTTP/2 connection for which there is no room.
func (c *conn) refuseHTTP2() {
	c.server.clients.turnedAway()
	c.server.noteTurnedAway()
	_ = c.client.NC.SetWriteDeadline(time.Now().Add(writeWithin))
	_, _ = c.client.NC.Write([]byte(goAwayFrames))
	_ = c.client.Wire.Close()
}

// noteTurnedAway logs, once a minute, that clients have to leave for others.
func (s *Server) noteTurnedAway() {
	if s.turnedAway.Allow() {
		s.log().Warn("no client slot is free; connections of idle and slow clients are closed", zap.Int("connections", int(s.connected.count.Load())))
	}
}

// moreTurnedAway logs how many more clients had to leave.
func (s *Server) moreTurnedAway(more int) {
	s.log().Warn("more connections of clients were closed because no slot was free", zap.Int("count", more))
}

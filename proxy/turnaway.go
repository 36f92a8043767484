package proxy

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/errorbody"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// noRoom is the response to a client that has to leave before its request was read.
const noRoom = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// noRoomModelAPI is the same for a client of a model's API, which may not read an error without a body.
var noRoomModelAPI = func() string {
	e := errorbody.Error{Status: 503, Reason: http1.RefusalNoClientSlot.String(), Text: http1.RefusalNoClientSlot.Explain()}
	body := e.Append(nil, errorbody.ModelAPI)
	length := fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	return strings.Replace(noRoom, "Content-Length: 0\r\n", length, 1) + string(body)
}()

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
	s.clients.evicting.queued.Add(1)
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
	_, _ = tcp.Write([]byte(s.noRoom()))
	_ = tcp.CloseWrite()
	if raw, err := tcp.SyscallConn(); err == nil {
		discardArrived(raw)
	}
}

// noRoom returns the response to a client whose route is not known.
func (s *Server) noRoom() string {
	if s.settings.Load().DefaultRoute.ModelAPI {
		return noRoomModelAPI
	}
	return noRoom
}

// discardArrived reads what has arrived, within bounds. To close a connection with unread bytes would
// reset it, and the client might lose the response.
func discardArrived(raw syscall.RawConn) {
	b := buffer.Get(buffer.Large)
	defer buffer.Put(b)
	_ = raw.Read(func(fd uintptr) bool {
		for range 4 {
			if n, err := rawsocket.TryRead(fd, b); n <= 0 || err != nil {
				break
			}
		}
		return true
	})
}

// refuseHTTP2 ends an HTTP/2 connection for which there is no room.
func (c *conn) refuseHTTP2() {
	c.server.clients.evicting.queued.Add(1)
	c.server.noteTurnedAway()
	_ = c.client.NC.SetWriteDeadline(time.Now().Add(writeWithin))
	_, _ = c.client.NC.Write([]byte(goAwayFrames))
	_ = c.client.Wire.Close()
}

// noteTurnedAway logs, once a minute, that clients have to leave for others.
func (s *Server) noteTurnedAway() {
	if s.turnedAway.Allow() {
		s.settings.Load().Log.Warn("client slots are short, clients are turned away", zap.Int("connections", int(s.connected.count.Load())))
	}
}

// limitTurnedAway sets the limit of these lines.
func (s *Server) limitTurnedAway() {
	s.turnedAway.PerMinute = 1
	s.turnedAway.OnSuppressed = func(more int) {
		s.settings.Load().Log.Warn("more clients were turned away", zap.Int("count", more))
	}
}

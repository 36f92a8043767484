package proxy

import (
	"bytes"

	"go.uber.org/zap"
)

// faultLinesPerMinute limits the warnings about clients' faults. Further ones are counted.
const faultLinesPerMinute = 10

// clientFault logs a warning about what a client did wrong on its connection.
func (s *Server) clientFault(msg string, fields ...zap.Field) {
	if s.clientFaults.Allow() {
		s.settings.Load().Log.Warn(msg, fields...)
	}
}

// limitFaults sets the limit of the warnings about clients' faults.
func (s *Server) limitFaults() {
	s.clientFaults.PerMinute = faultLinesPerMinute
	s.clientFaults.OnSuppressed = func(suppressed int) {
		s.settings.Load().Log.Warn("more faults of clients, lines suppressed", zap.Int("count", suppressed))
	}
}

// http2Log logs net/http's messages about faults of clients.
type http2Log struct{ server *Server }

func (l http2Log) Write(p []byte) (int, error) {
	l.server.clientFault("HTTP/2 with a client failed", zap.ByteString("message", bytes.TrimSpace(p)))
	return len(p), nil
}

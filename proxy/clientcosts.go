package proxy

import "github.com/retryproxy/retryproxy/proxy/settings"

// What one client needs of memory, in bytes: estimates of how much the resident set grows, with
// the garbage that goes with it. 700 to 1700 clients under GOMEMLIMIT=256MiB took 29 KiB each over
// HTTP/1.1 with a request in flight, 34 to 55 KiB over TLS, and 0.8 to 5 KiB parked.
const (
	plainCost   = 36 << 10 // HTTP/1.1 with a request in flight: two goroutines, buffers, its connection upstream
	secureCost  = 48 << 10 // the same over TLS
	parkedCost  = 2 << 10
	http2Cost   = 64 << 10 // and its window besides, see windowsFor
	streamCost  = 64 << 10 // a stream with a request in flight
	handlerCost = 12 << 10 // a stream that waits for its slot, or is being refused
)

// clientCosts are what clients are charged for; all zero where memory is not bounded.
type clientCosts struct {
	plain, secure, parked, http2 int64
}

func costsOf(memory int64) clientCosts {
	if memory <= 0 {
		return clientCosts{}
	}
	_, window := windowsFor(memory)
	return clientCosts{plainCost, secureCost, parkedCost, http2Cost + int64(window)/2}
}

// accepted is the cost of a client that has just been accepted.
func (k *clientCosts) accepted(n *settings.Settings) int64 {
	if n.ClientTLS != nil {
		return k.secure
	}
	return k.plain
}

// clientShare is the part of the memory for clients that is for connections; the other is for streams.
func clientShare(memory int64) int64 { return memory * 55 / 100 }

// maxStreams is how many HTTP/2 streams may have a request in flight at once, over all clients; 0: any number.
func maxStreams(c *Config) int {
	if c.ClientMemory <= 0 {
		return c.MaxConnections
	}
	most := int((c.ClientMemory - clientShare(c.ClientMemory)) / (streamCost + (handlersPerSlot-1)*handlerCost))
	if c.MaxConnections > 0 {
		most = min(most, c.MaxConnections)
	}
	return max(most, 1)
}

// windowsFor returns HTTP/2's windows for a stream and for a connection.
func windowsFor(memory int64) (stream, connection int) {
	connection = connectionWindow
	if memory > 0 {
		connection = int(min(max(clientShare(memory)/128, 64<<10), connectionWindow))
	}
	return min(streamWindow, connection), connection
}

// recharge changes what the connection is charged for.
func (c *conn) recharge(to int64) {
	if c.cost != to {
		c.server.clients.recharge(c.cost, to)
		c.cost = to
	}
}

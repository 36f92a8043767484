package proxy

import (
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The memory that one client needs, in bytes. These are estimates of how much the resident set
// grows, garbage included. 700 to 1700 clients under GOMEMLIMIT=256MiB took 29 KiB each over
// HTTP/1.1 with a request in flight, 34 to 55 KiB over TLS, and 0.8 to 5 KiB parked.
const (
	newcomerCost = 12 << 10 // no request yet: a goroutine and a read buffer, or half a TLS handshake
	plainCost    = 36 << 10 // HTTP/1.1 with a request in flight: two goroutines, buffers, its connection upstream
	secureCost   = 48 << 10 // the same over TLS
	parkedCost   = 2 << 10
	http2Cost    = 16 << 10 // HTTP/2 without a stream: 13 KiB of 800 connections
	streamsCost  = 16 << 10 // in addition once it has had a stream, plus an eighth of a stream's window: 27 KiB
	streamCost   = 64 << 10 // a stream with a request in flight
	handlerCost  = 12 << 10 // a stream that waits for its slot, or is being rejected
)

// clientCosts are the costs charged for clients, by what they have reached; all are zero if memory is
// not bounded.
type clientCosts struct {
	newcomer, plain, secure, parked, http2, streams int64
}

func costsOf(memory int64) clientCosts {
	if memory <= 0 {
		return clientCosts{}
	}
	return clientCosts{newcomerCost, plainCost, secureCost, parkedCost, http2Cost, streamsCost + int64(streamWindow(memory))/8}
}

// serving returns the cost of a client whose request is served.
func (k *clientCosts) serving(secure bool) int64 {
	if secure {
		return k.secure
	}
	return k.plain
}

// servingHTTP2 returns the cost of an HTTP/2 connection, beside its streams; used means that it has had
// one.
func (k *clientCosts) servingHTTP2(secure, used bool) int64 {
	cost := k.http2 + k.secure - k.plain
	if !secure {
		cost = k.http2
	}
	if used {
		cost += k.streams
	}
	return cost
}

// clientShare returns the part of the memory for clients that is for connections; the rest is for
// streams.
func clientShare(memory int64) int64 { return memory * 55 / 100 }

// maxStreams returns how many HTTP/2 streams may have a request in flight at once, over all
// clients; 0: any number.
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

// backlogPart is the divisor of the memory for clients that gives the bytes which may wait in HTTP/2
// streams for slow readers: 300 clients that read nothing under GOMEMLIMIT=64MiB.
const backlogPart = 4

// readAhead returns what peers may send by HTTP/2 before it is read; memory is that for clients.
func readAhead(memory int64) http2.ReadAhead {
	return http2.ReadAhead{Window: streamWindow(memory), Backlog: http2.NewBacklog(memory / backlogPart)}
}

// streamWindow returns HTTP/2's window for a stream, in bytes.
func streamWindow(memory int64) int {
	if memory <= 0 {
		return upstream.DefaultStreamWindow
	}
	return int(min(max(clientShare(memory)/256, 64<<10), upstream.DefaultStreamWindow))
}

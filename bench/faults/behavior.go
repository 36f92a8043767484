//go:build linux

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// Headers that only clients and upstream use.
const (
	fieldID    = "X-Fault-Id"
	fieldSum   = "X-Fault-Sum"   // hash of the request's body
	fieldWait  = "X-Fault-Wait"  // how long the upstream waits before it responds
	fieldShort = "X-Fault-Short" // in a response whose Content-Length is too short
)

// goodBody returns the body of the response to a request.
func goodBody(id string) string { return id + " " + sum([]byte(id)) + "\n" }

func sum(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }

// framing is how a response marks its end.
type framing int

const (
	byLength framing = iota
	byChunks
	byClose
	framings
)

// render returns a good response to request id. Its chunks have 16 bytes.
func (f framing) render(id string) []byte {
	head, body := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", goodBody(id)
	switch f {
	case byChunks:
		out := []byte(head + "Transfer-Encoding: chunked\r\n\r\n")
		for len(body) > 0 {
			n := min(16, len(body))
			out = fmt.Appendf(out, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		return append(out, "0\r\n\r\n"...)
	case byClose:
		return []byte(head + "Connection: close\r\n\r\n" + body)
	}
	return fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}

// exchange is a request at the upstream.
type exchange struct {
	s     *server
	c     net.Conn
	q     *http.Request
	id    string
	first bool // attempt
}

// read reads and checks the request's body.
func (x *exchange) read() error {
	body, err := io.ReadAll(x.q.Body)
	if err == nil && sum(body) != x.q.Header.Get(fieldSum) {
		x.id = "a request whose body is not what the client sent" // no client expects this id
	}
	return err
}

func (x *exchange) write(b []byte) error {
	_, err := x.c.Write(b)
	return err
}

// errEnded ends the connection.
var errEnded = errors.New("ended")

// Names of behaviors.
const (
	good         = "good"
	closing      = "closes"
	late         = "late"
	resetting    = "reset"
	slow         = "slow"
	earlyReading = "early"
	earlyLeaving = "early-leaves"
	tooLong      = "too-long"
	tooShort     = "too-short"
	misdated     = "misdated"
	silence      = "silence"
	limited      = "limited"
	noContent    = "no-content"
)

const (
	lateBy    = 100 * time.Millisecond // how long a late response takes
	byteEvery = 2 * time.Millisecond   // the pause of a slow response after each byte
)

// behavior is a way to respond. An error ends the connection.
type behavior struct {
	early    bool // respond before the body is read
	affected bool // the fault concerns every request
	answer   func(x *exchange) error
}

var behaviors = map[string]behavior{
	good:    {answer: (*exchange).good},
	closing: {answer: func(x *exchange) error { _ = x.write(byClose.render(x.id)); return errEnded }}, // the proxy has to make another connection
	late:    {answer: func(x *exchange) error { time.Sleep(lateBy); return x.good() }},
	slow: {affected: true, answer: func(x *exchange) error {
		for _, b := range byChunks.render(x.id) {
			if err := x.write([]byte{b}); err != nil {
				return err
			}
			time.Sleep(byteEvery)
		}
		return nil
	}},
	earlyReading: {early: true, affected: true, answer: func(x *exchange) error { return errors.Join(x.good(), x.read()) }},
	earlyLeaving: {early: true, affected: true, answer: func(x *exchange) error { _ = x.good(); return errEnded }},
	resetting:    {answer: (*exchange).reset},
	silence:      {affected: true, answer: func(*exchange) error { select {} }},
	// Content-Length is more than is sent. Then the connection closes or, every other time, stays silent.
	tooLong: {affected: true, answer: func(x *exchange) error {
		body := goodBody(x.id)
		err := x.write(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body)+10, body))
		if x.s.nth.Add(1)%2 == 0 {
			return errEnded
		}
		return err
	}},
	// Content-Length is less than is sent: the rest of the body and a whole response to another request.
	tooShort: {affected: true, answer: func(x *exchange) error {
		body := goodBody(x.id)
		out := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n%s: 1\r\nContent-Length: %d\r\n\r\n%s", fieldShort, len(body)/2, body)
		return x.write(append(out, byLength.render("somebody else")...))
	}},
	// First attempts are to come again in a second, by a clock that is years fast or slow.
	misdated: {answer: func(x *exchange) error {
		if !x.first {
			return x.good()
		}
		now := time.Now().AddDate(int(x.s.nth.Add(1)%2)*20-10, 0, 0).UTC()
		return x.refuse(now, "Retry-After: "+now.Add(time.Second).Format(http.TimeFormat)+"\r\n")
	}},
	// Every third first attempt exceeds a rate limit, whatever the method.
	limited: {answer: func(x *exchange) error {
		if !x.first || x.s.nth.Add(1)%3 != 0 {
			return x.good()
		}
		x.s.affected.Add(1)
		return x.write([]byte("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"))
	}},
	// Every third first attempt that may be retried gets an event stream that is cut off without an event.
	noContent: {answer: func(x *exchange) error {
		if !x.first || !x.mayRetry() || x.s.nth.Add(1)%3 != 0 {
			return x.good()
		}
		x.s.affected.Add(1)
		_ = x.write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"))
		time.Sleep(lateBy)
		return errEnded
	}},
}

func (x *exchange) mayRetry() bool {
	return requestKind{method: x.q.Method, key: x.q.Header.Get("Idempotency-Key") != ""}.mayRetry()
}

func (x *exchange) good() error { return x.write(byLength.render(x.id)) }

func (x *exchange) refuse(date time.Time, after string) error {
	x.s.affected.Add(1)
	return x.write(fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nDate: %s\r\n%sContent-Length: 0\r\n\r\n", date.Format(http.TimeFormat), after))
}

// cuts returns how many ways there are to cut a response: each framing at every byte. All ids have the
// same length.
func cuts(id string) (n int64) {
	for f := range framings {
		n += int64(len(f.render(id))) + 1
	}
	return n
}

// reset sends first attempts the beginning of a response, one byte longer each time, and then a reset. The
// last beginning is the whole response.
func (x *exchange) reset() error {
	if !x.first || x.s.nth.Load() >= cuts(x.id) {
		return x.good()
	}
	n := x.s.nth.Add(1) - 1
	for f := range framings {
		whole := f.render(x.id)
		if n <= int64(len(whole)) {
			x.s.affected.Add(1)
			_ = x.write(whole[:n])
			rig.Reset(x.c)
			return errEnded
		}
		n -= int64(len(whole)) + 1
	}
	return x.good()
}

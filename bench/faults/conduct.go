//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// conduct answers a request in a certain way. An error ends the connection.
type conduct func(x *exchange) error

// exchange is a request at the upstream whose body is not read yet.
type exchange struct {
	s     *server
	c     net.Conn
	q     *http.Request
	id    string
	first bool // attempt
}

// Names of conducts.
const (
	wellBehaved  = "good"
	closing      = "closes"
	late         = "late"
	resetting    = "reset"
	slow         = "slow"
	earlyReading = "early"
	earlyLeaving = "early-leaves"
	tooLong      = "too-long"
	tooShort     = "too-short"
	misdated     = "misdated"
	nowAndThen   = "now-and-then"
)

var conducts = map[string]conduct{
	wellBehaved:  (*exchange).good,
	closing:      (*exchange).closing,
	late:         (*exchange).late,
	resetting:    (*exchange).reset,
	slow:         (*exchange).slow,
	earlyReading: (*exchange).earlyReading,
	earlyLeaving: (*exchange).earlyLeaving,
	tooLong:      (*exchange).tooLong,
	tooShort:     (*exchange).tooShort,
	misdated:     (*exchange).misdated,
	nowAndThen:   (*exchange).nowAndThen,
}

// read reads and checks the request's body.
func (x *exchange) read() error {
	body, err := io.ReadAll(x.q.Body)
	if err == nil && sum(body) != x.q.Header.Get(fieldSum) {
		x.id = "a request whose body is not what the client sent" // which is no client's answer
	}
	return err
}

func (x *exchange) write(b []byte) error {
	_, err := x.c.Write(b)
	return err
}

func (x *exchange) good() error {
	if err := x.read(); err != nil {
		return err
	}
	return x.write(byLength.render(x.id))
}

// closing ends the connection after each response, so that the proxy has to make another.
func (x *exchange) closing() error {
	if err := x.read(); err != nil {
		return err
	}
	_ = x.write(byClose.render(x.id))
	return errEnded
}

// lateBy is how long a late response takes.
const lateBy = 100 * time.Millisecond

func (x *exchange) late() error {
	if err := x.read(); err != nil {
		return err
	}
	time.Sleep(lateBy)
	return x.write(byLength.render(x.id))
}

// cuts is how many ways there are to cut answers: each framing at every byte. All ids have the same length.
func cuts(id string) (n int64) {
	for f := range framings {
		n += int64(len(f.render(id))) + 1
	}
	return n
}

// reset answers first attempts by a beginning, one byte longer each time, and a
// reset; a whole response before it is the last.
func (x *exchange) reset() error {
	if err := x.read(); err != nil {
		return err
	}
	if !x.first || x.s.nth.Load() >= cuts(x.id) {
		return x.write(byLength.render(x.id))
	}
	n := x.s.nth.Add(1) - 1
	for f := range framings {
		whole := f.render(x.id)
		if n <= int64(len(whole)) {
			x.s.met.Add(1)
			_ = x.write(whole[:n])
			reset(x.c)
			return errEnded
		}
		n -= int64(len(whole)) + 1
	}
	return x.write(byLength.render(x.id))
}

// byteEvery is the pause of a slow answer after each byte.
const byteEvery = 2 * time.Millisecond

func (x *exchange) slow() error {
	if err := x.read(); err != nil {
		return err
	}
	x.s.met.Add(1)
	for _, b := range byChunks.render(x.id) {
		if err := x.write([]byte{b}); err != nil {
			return err
		}
		time.Sleep(byteEvery)
	}
	return nil
}

// earlyReading answers before it reads the body.
func (x *exchange) earlyReading() error {
	x.s.met.Add(1)
	if err := x.write(byLength.render(x.id)); err != nil {
		return err
	}
	return x.read()
}

// earlyLeaving answers before it reads the body, which it never does.
func (x *exchange) earlyLeaving() error {
	x.s.met.Add(1)
	_ = x.write(byLength.render(x.id))
	return errEnded
}

// tooLong announces more bytes than it sends, and closes or, every other time, stays silent.
func (x *exchange) tooLong() error {
	if err := x.read(); err != nil {
		return err
	}
	x.s.met.Add(1)
	body := goodBody(x.id)
	err := x.write(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body)+10, body))
	if x.s.nth.Add(1)%2 == 0 || err != nil {
		return errEnded
	}
	return nil
}

// tooShort sends more bytes than it announces: the rest of the body and a whole
// answer to somebody else.
func (x *exchange) tooShort() error {
	if err := x.read(); err != nil {
		return err
	}
	x.s.met.Add(1)
	body := goodBody(x.id)
	out := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n%s: 1\r\nContent-Length: %d\r\n\r\n%s", fieldShort, len(body)/2, body)
	return x.write(append(out, byLength.render("somebody else")...))
}

// misdated asks first attempts to come again in a second, as an upstream whose
// clock is years fast or slow says that.
func (x *exchange) misdated() error {
	if err := x.read(); err != nil {
		return err
	}
	if !x.first {
		return x.write(byLength.render(x.id))
	}
	x.s.met.Add(1)
	now := time.Now().AddDate(int(x.s.nth.Add(1)%2)*20-10, 0, 0).UTC()
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 503 Service Unavailable\r\nDate: %s\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n",
		now.Format(http.TimeFormat), now.Add(time.Second).Format(http.TimeFormat))
	return x.write(out.Bytes())
}

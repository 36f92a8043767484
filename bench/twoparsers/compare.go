package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/streams"
)

// ending follows the whole requests of a connection: who reads one's end
// elsewhere swallows it, or reads something before it.
const ending = "GET /ending HTTP/1.1\r\nHost: ending.example\r\nConnection: close\r\n\r\n"

// compare shows the bytes of a connection to all readers.
func (s *stage) compare(r *report, all []byte) {
	messages, rest, fault := streams.Split(all)
	r.mu.Lock()
	r.Connections++
	r.Requests += len(messages)
	if rest != nil && fault == nil {
		r.Cut++
	}
	r.mu.Unlock()
	if fault != nil {
		r.violation("http.ReadRequest: %v\n  of %.3000q", fault, all)
	}
	for _, by := range s.readers {
		by.readAll(r, messages)
		if rest != nil && fault == nil {
			if got, _, err := by.show(rest, true); err != nil || len(got) > 0 {
				r.violation("%s reads %v in a request that is cut off (%v)\n  %.3000q", by.name, got, err, rest)
			}
		}
	}
}

// readAll shows messages to a reader, once more from behind each that it refuses
// for a reason of its own.
func (by *reader) readAll(r *report, messages []streams.Message) {
	for len(messages) > 0 {
		var raw []byte
		var want []streams.Reading
		for _, m := range messages {
			raw, want = append(raw, m.Raw...), append(want, m.Reading)
		}
		want = append(want, streams.Reading{Method: "GET", Target: "/ending", Host: "ending.example", Body: emptyBody})
		got, statuses, err := by.show(append(raw, ending...), false)
		n := 0
		for n < len(got) && n < len(want) && got[n] == want[n] {
			n++
		}
		if n == len(want) && n == len(got) {
			return
		}
		if n == len(got) && n < len(messages) && n < len(statuses) {
			if k := ruleFor(by.name, statuses[n], &messages[n]); k != nil {
				r.known(k.name())
				messages = messages[n+1:]
				continue
			}
		}
		r.violation("%s reads otherwise (%v), and answers %v:\n  %v\n  instead of\n  %v\n  %.3000q", by.name, err, statuses, got, want, raw)
		return
	}
}

var emptyBody = func() string {
	req, _ := http.NewRequest("GET", "/", http.NoBody)
	r, _ := streams.ReadingOf(req)
	return r.Body
}()

// patience is for one connection to a reader.
const patience = 20 * time.Second

// show sends bytes to a reader and gives what it read, and the statuses of its
// answers. cut: the bytes end within a request, and so does the connection.
func (by *reader) show(raw []byte, cut bool) ([]streams.Reading, []int, error) {
	c, err := net.Dial("tcp", by.addr)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	go func() {
		_, _ = c.Write(raw)
		if cut {
			_ = c.(*net.TCPConn).CloseWrite()
		}
	}()
	answers, err := io.ReadAll(c)
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	return by.origin.take(port), statusesOf(answers, raw), ignoreReset(err)
}

// ignoreReset: who refuses a request may close with bytes unread.
func ignoreReset(err error) error {
	if op, is := err.(*net.OpError); is && !op.Timeout() {
		return nil
	}
	return err
}

// statusesOf reads answers to the requests in raw.
func statusesOf(answers, raw []byte) (all []int) {
	asked, _, _ := streams.Split(raw)
	r := bufio.NewReader(bytes.NewReader(answers))
	for {
		method := "GET"
		if len(all) < len(asked) {
			method = asked[len(all)].Method
		}
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return all
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode >= 200 {
			all = append(all, res.StatusCode)
		}
	}
}

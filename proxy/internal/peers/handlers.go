package peers

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Script answers request after request, on whatever connections, with the
// given raw responses in order; the last one is repeated. "" resets.
func Script(responses ...string) func(c *Conn) {
	var mu sync.Mutex
	next := 0
	return func(c *Conn) {
		for {
			headers := c.Head()
			if headers == "" {
				return
			}
			DiscardBody(c, headers)
			mu.Lock()
			r := responses[min(next, len(responses)-1)]
			next++
			mu.Unlock()
			if r == "" {
				c.Reset()
				return
			}
			c.Say("%s", r)
			if strings.Contains(r, "Connection: close") || !strings.Contains(r, "HTTP/1.1 ") {
				return
			}
		}
	}
}

// Responses.
const (
	OK200  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	Bad503 = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
	Bad429 = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow"
)

// AnswersAfter answers each request after d.
func AnswersAfter(d time.Duration, response string) func(c *Conn) {
	return func(c *Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			DiscardBody(c, headers)
			time.Sleep(d)
			c.Say("%s", response)
		}
	}
}

// NeverAnswers reads requests and answers none.
func NeverAnswers(c *Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		DiscardBody(c, headers)
	}
}

// ByConn lets each connection be handled by its own function, in order of
// arrival; the last one handles all that follow.
func ByConn(handlers ...func(c *Conn)) func(c *Conn) {
	return func(c *Conn) { handlers[min(c.N, len(handlers))-1](c) }
}

// NeverResponds reads one request and answers nothing. It returns when the connection ends.
func NeverResponds(c *Conn) {
	headers := c.Head()
	DiscardBody(c, headers)
	_, _ = io.Copy(io.Discard, c.Reader)
}

// RespondsAfter answers each request after d, or resets if response is empty. It returns when the connection ends,
// which AnswersAfter does not notice.
func RespondsAfter(d time.Duration, response string) func(c *Conn) {
	return func(c *Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			DiscardBody(c, headers)
			if !c.Stays(d) {
				return
			}
			if response == "" {
				c.Reset()
				return
			}
			c.Say("%s", response)
		}
	}
}

// Bad503Closing is Bad503 by a server that closes the connection.
const Bad503Closing = "HTTP/1.1 503 X\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy"

// Response is a response with that body.
func Response(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// RawResponse is a response with the fields given, one a line.
func RawResponse(status int, fields ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\n%s\r\nContent-Length: 4\r\n\r\nwait", status, http.StatusText(status), strings.Join(append(fields, "X-Test: 1"), "\r\n"))
}

// Timed answers first with the given answers, then 200, and notes when.
type Timed struct {
	mu    sync.Mutex
	First []string
	At    []time.Time
}

// Handle answers the requests of one connection.
func (s *Timed) Handle(c *Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		DiscardBody(c, headers)
		s.Answer(c)
	}
}

// Answer answers one request.
func (s *Timed) Answer(c *Conn) {
	s.mu.Lock()
	s.At = append(s.At, time.Now())
	response := OK200
	if len(s.First) > 0 {
		response, s.First = s.First[0], s.First[1:]
	}
	s.mu.Unlock()
	c.Say("%s", response)
}

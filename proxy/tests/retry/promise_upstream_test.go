package retry

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// drained takes what is written to a connection at once, as a kernel does, and
// gives it when it is read.
type drained struct {
	mu    sync.Mutex
	more  sync.Cond
	bytes bytes.Buffer
	ended bool
}

func drain(c net.Conn) *drained {
	d := &drained{}
	d.more.L = &d.mu
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := c.Read(buf)
			d.mu.Lock()
			d.bytes.Write(buf[:n])
			d.ended = err != nil
			d.more.Broadcast()
			d.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return d
}

func (d *drained) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.bytes.Len() == 0 && !d.ended {
		d.more.Wait()
	}
	return d.bytes.Read(p)
}

// handle is a connection of a world's upstream.
func (w *promiseWorld) handle(c *peers.Conn) {
	c.Reader = bufio.NewReader(drain(c.Conn))
	for headers := c.Head(); headers != ""; headers = c.Head() {
		q, n, r := w.arrived(headers)
		if q == nil || !w.act(c, headers, q, n, r) {
			return
		}
	}
}

// arrived notes an attempt, and gives its number, from 0, and the source of what
// becomes of it.
func (w *promiseWorld) arrived(headers string) (*promiseRequest, int, *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, rest, _ := strings.Cut(headers, " /p/")
	text, _, _ := strings.Cut(rest, " ")
	id, err := strconv.Atoi(text)
	if err != nil || id >= len(w.requests) {
		w.broken = append(w.broken, fmt.Sprintf("the upstream got %.80q", headers))
		return nil, 0, nil
	}
	_, rest, _ = strings.Cut(headers, "X-Retryproxy-Attempt: ")
	text, _, _ = strings.Cut(rest, "\r\n")
	number, err := strconv.Atoi(text)
	if err != nil {
		number = 1 // it is the first that needs no number
	}
	q := w.requests[id]
	q.arrivals = append(q.arrivals, promiseArrival{at: time.Now(), number: number})
	return q, len(q.arrivals) - 1, promiseSource(w.seed, drawsAct+uint64(id), uint64(len(q.arrivals)))
}

// act does something with an attempt; false: the connection is over.
func (w *promiseWorld) act(c *peers.Conn, headers string, q *promiseRequest, n int, r *rand.Rand) bool {
	early := r.IntN(10) == 0
	if !early {
		peers.DiscardBody(c, headers)
	}
	if r.IntN(3) == 0 {
		time.Sleep(promiseTime(r))
	}
	if r.IntN(100) >= w.troubled {
		return w.answer(c, q, n, r, 200) && !early
	}
	switch r.IntN(9) {
	case 0:
		return false // a reset, for a pipe has but one end
	case 1:
		time.Sleep(2 * time.Minute)
		return false
	case 2:
		c.Say("HTTP/1.1 abc\r\n\r\n")
		return false
	case 3:
		c.Say("HTTP/1.1 503 x\r\nContent-Length: 50\r\n\r\npart")
		return false
	}
	return w.answer(c, q, n, r, peers.OneOf(r, 429, 500, 502, 503, 503, 504, 404)) && !early
}

// answer says a status, and now and then more than that.
func (w *promiseWorld) answer(c *peers.Conn, q *promiseRequest, n int, r *rand.Rand, status int) bool {
	extra, body := "", "ok"
	if status != 200 && r.IntN(2) == 0 {
		seconds := peers.OneOf(r, 0, 1, 1, 7, 31, 3600)
		extra = fmt.Sprintf("Retry-After: %d\r\n", seconds)
		w.mu.Lock()
		q.arrivals[n].until = time.Now().Add(time.Duration(seconds) * time.Second)
		w.mu.Unlock()
	}
	if r.IntN(8) == 0 {
		body = "some more"
	}
	c.Say("HTTP/1.1 %d x\r\n%sContent-Length: %d\r\n\r\n%s", status, extra, len(body), body)
	switch r.IntN(10) {
	case 0:
		return false // at once, though it did not say so
	case 1:
		end := time.AfterFunc(time.Duration(r.Int64N(int64(5*time.Second))), func() { c.Conn.Close() })
		_, err := c.Peek(1)
		return end.Stop() && err == nil // else it is gone, though it looked kept
	}
	return true
}

package main

import (
	"bufio"
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// work is the requests that the server has. One goroutine looks at those that
// are due, so that twenty thousand of them cost little more than a handful.
type work struct {
	o      *serverOptions
	reject atomic.Bool // answer 503

	mu       sync.Mutex // guards what follows
	wheel    [][]*job   // by milliseconds, a ring: jobs that are looked at then
	at       int64      // millisecond that the wheel stands at
	began    time.Time
	atOnce   int
	most     int // at once, since the last load
	answered int
}

// job is a request. It belongs to its connection, which has one at a time.
type job struct {
	began time.Time
	done  chan int // the status
}

func newWork(o *serverOptions) *work {
	return &work{o: o, began: time.Now(), wheel: make([][]*job, o.look/time.Millisecond+2)}
}

// begin takes a request on.
func (w *work) begin(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.began = time.Now()
	w.atOnce++
	w.most = max(w.most, w.atOnce)
	w.wait(j, j.began)
}

// wait looks at j again after look, or when it should be done if that is
// sooner. Called with mu held.
func (w *work) wait(j *job, now time.Time) {
	d := min(w.o.need(w.atOnce)-now.Sub(j.began), w.o.look)
	ms := now.Add(d).Sub(w.began).Milliseconds() + 1
	ms = min(max(ms, w.at+1), w.at+int64(len(w.wheel))-1)
	i := ms % int64(len(w.wheel))
	w.wheel[i] = append(w.wheel[i], j)
}

// run turns the wheel; it does not return.
func (w *work) run() {
	for range time.Tick(time.Millisecond) {
		w.turn(time.Now())
	}
}

// turn looks at all that is due by now.
func (w *work) turn(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	to := now.Sub(w.began).Milliseconds()
	// After a stop one round shows them all.
	for n := min(to-w.at, int64(len(w.wheel))); n > 0; n-- {
		w.at = to - n + 1
		i := w.at % int64(len(w.wheel))
		due := w.wheel[i]
		w.wheel[i] = nil
		for _, j := range due {
			w.see(j, now)
		}
	}
}

// see ends a job whose time has come. Called with mu held.
func (w *work) see(j *job, now time.Time) {
	if now.Sub(j.began) < w.o.need(w.atOnce) {
		w.wait(j, now)
		return
	}
	w.atOnce--
	w.answered++
	status := 200
	if w.reject.Load() {
		status = 503
	}
	j.done <- status
}

// load is the requests now, the most of them since it was last asked, and the
// answers since the start.
func (w *work) load() (now, most, answered int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, most, answered = w.atOnce, w.most, w.answered
	w.most = w.atOnce
	return now, most, answered
}

var (
	answer200 = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n")
	answer503 = []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\ndown\n")
)

// serveConn serves GET requests, one after the other. It does not watch the
// connection while a request is worked on: a client that leaves is noticed
// only when its response cannot be written.
func (w *work) serveConn(c net.Conn) {
	defer c.Close()
	in := bufio.NewReaderSize(c, 1024)
	j := &job{done: make(chan int, 1)}
	for readHead(in) {
		w.begin(j)
		answer := answer200
		if <-j.done != 200 {
			answer = answer503
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// readHead reads up to the empty line; the clients send no bodies.
func readHead(in *bufio.Reader) bool {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return false
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return true
		}
	}
}

package everyrule

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// act is what a scripted upstream does with one attempt.
type act func(a *arrival)

// arrival is an attempt as it came to the upstream, and the means to answer it,
// in the words of neither protocol.
type arrival struct {
	protocol
	r      *run
	n      int // from 1
	at     time.Time
	method string
	path   string
	header http.Header

	mu       sync.Mutex // guards all below
	body     []byte
	trailers http.Header
	whole    bool // the body came to its end
	gone     bool // the proxy gave the attempt up
}

// protocol is one protocol's way to read an attempt and to answer it. One goroutine
// uses it.
type protocol interface {
	io.Reader                                    // the body
	trailer() http.Header                        // once the body ended
	interim(status int, fields ...string)        // a 1xx
	headers(status, length int, fields []string) // length < 0: not announced
	data(p string)                               // of the body
	end(trailers ...string)                      // of a body whose length was not announced
	cut()                                        // as broken as can be: a reset
	hangUp()                                     // the connection ends in order
	disown(last int, refused bool)               // "not processed", where the protocol can say so
	nonsense()                                   // no response
	abandoned()                                  // returns when the proxy gave the attempt up, or the test ended
}

// errAbandoned is what reading gives when the proxy ended the attempt.
var errAbandoned = errors.New("the attempt was given up")

// scripted is an upstream that does with attempt after attempt what its rule says.
type scripted struct {
	*peers.Upstream
	r   *run
	url string

	mu       sync.Mutex
	arrivals []*arrival
}

func startScripted(r *run, speaks proto) *scripted {
	s := &scripted{r: r}
	if speaks == one {
		s.Upstream = peers.StartUpstream(r, s.serveHTTP1)
		s.url = "http://" + s.Addr().String()
	} else {
		s.Upstream = peers.StartUpstream(r, s.serveHTTP2)
		s.url = "h2c://" + s.Addr().String()
	}
	return s
}

// perform does what is to be done with an attempt.
func (s *scripted) perform(a *arrival) {
	a.r, a.at = s.r, time.Now()
	if a.path == afterwards {
		says(200, "after")(a)
		return
	}
	s.mu.Lock()
	s.arrivals = append(s.arrivals, a)
	a.n = len(s.arrivals)
	s.mu.Unlock()
	s.r.acts[min(a.n, len(s.r.acts))-1](a)
}

func (s *scripted) all() []*arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrivals[:len(s.arrivals):len(s.arrivals)]
}

func (s *scripted) arrived() int { return len(s.all()) }

func (s *scripted) givenUp() (n int) {
	for _, a := range s.all() {
		a.mu.Lock()
		if a.gone {
			n++
		}
		a.mu.Unlock()
	}
	return n
}

// dropAll ends every connection.
func (s *scripted) dropAll() {
	s.CloseConns()
	peers.Soon(s.r, "the connections' end", func() bool { return s.Opened() == 0 })
}

// readAll reads the body to its end.
func (a *arrival) readAll() bool {
	buf := make([]byte, 32<<10)
	for {
		n, err := a.Read(buf)
		a.mu.Lock()
		a.body = append(a.body, buf[:n]...)
		switch {
		case err == io.EOF:
			a.whole, a.trailers = true, a.trailer()
		case err != nil:
			a.gone = true
		}
		a.mu.Unlock()
		if err != nil {
			return err == io.EOF
		}
	}
}

// givenUp waits until the proxy gives the attempt up.
func (a *arrival) givenUp() {
	a.abandoned()
	a.mu.Lock()
	a.gone = true
	a.mu.Unlock()
}

// says answers with a body of known length, once the request has come whole.
func says(status int, body string, fields ...string) act {
	return func(a *arrival) {
		if !a.readAll() {
			return
		}
		a.headers(status, len(body), fields)
		a.data(body)
	}
}

// streams is says without an announced length, with trailers (name, value).
func streams(status int, body string, trailers ...string) act {
	return func(a *arrival) {
		if !a.readAll() {
			return
		}
		a.headers(status, -1, nil)
		a.data(body)
		a.end(trailers...)
	}
}

// saysEarly answers before it has read of the body, which it then reads.
func saysEarly(status int, body string) act {
	return func(a *arrival) {
		a.headers(status, len(body), nil)
		a.data(body)
		_ = a.readAll()
	}
}

// breaksOff sends a head and of the body a part only, which it resets once the
// client has it. length as for wire.head.
func breaksOff(status, length int, part string) act {
	return func(a *arrival) {
		_ = a.readAll()
		a.headers(status, length, nil)
		a.data(part)
		peers.Soon(a.r, "the part", func() bool { return a.r.client.got.Load() >= int64(len(part)) })
		a.cut()
	}
}

// endsEarly is breaksOff with an orderly end of the connection, at once.
func endsEarly(status, length int, part string) act {
	return func(a *arrival) {
		_ = a.readAll()
		a.headers(status, length, nil)
		a.data(part)
		a.hangUp()
	}
}

// stalls takes the request and does not answer until it is given up.
func stalls(a *arrival) {
	if a.readAll() {
		a.givenUp()
	}
}

// resets takes the request and breaks off before a response.
func resets(a *arrival) {
	_ = a.readAll()
	a.cut()
}

// hangsUp is resets with an orderly end.
func hangsUp(a *arrival) {
	_ = a.readAll()
	a.hangUp()
}

// after does then once the test lets it.
func after(then act) act {
	return func(a *arrival) {
		select {
		case <-a.r.release:
		case <-a.r.Context().Done():
		}
		then(a)
	}
}

// serveHTTP1 is a connection of HTTP/1.1.
func (s *scripted) serveHTTP1(c *peers.Conn) {
	for {
		req, err := http.ReadRequest(c.Reader)
		if err != nil {
			return
		}
		w := &wire1{c: c, req: req}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			w.interim(100)
		}
		s.perform(&arrival{protocol: w, method: req.Method, path: req.URL.Path, header: req.Header})
		if w.over {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
	}
}

// wire1 is wire in HTTP/1.1.
type wire1 struct {
	c       *peers.Conn
	req     *http.Request
	chunked bool
	over    bool // the connection
}

func (w *wire1) Read(p []byte) (int, error) { return w.req.Body.Read(p) }
func (w *wire1) trailer() http.Header       { return w.req.Trailer }

func (w *wire1) interim(status int, fields ...string) {
	w.c.Say("HTTP/1.1 %d %s\r\n%s\r\n", status, http.StatusText(status), headerLines(fields))
}

func (w *wire1) headers(status, length int, fields []string) {
	framing := fmt.Sprintf("Content-Length: %d\r\n", length)
	switch {
	case status == 204 || status == 304:
		framing = ""
	case length < 0:
		w.chunked, framing = true, "Transfer-Encoding: chunked\r\n"
	}
	w.c.Say("HTTP/1.1 %d %s\r\n%s%s\r\n", status, http.StatusText(status), framing, headerLines(fields))
}

func (w *wire1) data(p string) {
	switch {
	case p == "" || w.req.Method == http.MethodHead:
	case w.chunked:
		w.c.Say("%x\r\n%s\r\n", len(p), p)
	default:
		w.c.Say("%s", p)
	}
}

func (w *wire1) end(trailers ...string) { w.c.Say("0\r\n%s\r\n", headerLines(trailers)) }

func (w *wire1) cut() { w.over = true; w.c.Reset() }

func (w *wire1) hangUp() { w.over = true }

func (w *wire1) nonsense() {
	w.c.Say("HTTP/1.1 abc\r\n\r\n")
	w.over = true
}

func (w *wire1) disown(int, bool) { w.c.T.Error("HTTP/1.1 cannot say that") }

func (w *wire1) abandoned() {
	_, _ = io.Copy(io.Discard, w.c.Reader)
	w.over = true
}

func headerLines(fields []string) string {
	var b strings.Builder
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", fields[i], fields[i+1])
	}
	return b.String()
}

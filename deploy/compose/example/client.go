package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// keptFailures bounds the failures since the last /resume that /stats tells one by one.
const keptFailures = 50

// client sends requests at a steady rate, whatever their results, and counts the
// responses. It does not retry.
type client struct {
	target  string
	client  *http.Client
	paused  atomic.Bool
	running sync.WaitGroup // requests in flight; added to only with begin held
	begin   sync.Mutex     // held while a request begins, and to pause

	codes tally

	mu     sync.Mutex // guards all below
	errors int64      // requests without a response
	since  window
}

// window is what is told of the time since the last /resume.
type window struct {
	Sent     int64     `json:"sent"`
	Slowest  float64   `json:"slowest_seconds"` // of those that may be retried
	Failures []failure `json:"failures"`        // the first keptFailures
}

// failure is a request that got no 200.
type failure struct {
	Began  time.Time `json:"began"`
	Took   float64   `json:"took_seconds"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Safe   bool      `json:"safe"` // idempotent, or with a key: should not have failed
	Code   int       `json:"code"`
	Why    string    `json:"why"`
}

func addClient(mux *http.ServeMux) error {
	rate, err := number("RATE", 20)
	if err != nil {
		return err
	}
	c := &client{target: strings.TrimSuffix(env("TARGET", ""), "/")}
	if c.target == "" || rate == 0 {
		return errors.New("TARGET and RATE: expected a URL and requests a second")
	}
	// The address of a container that has just gone answers nothing. Of two
	// addresses the second is tried after half of the time to dial.
	dial := &net.Dialer{Timeout: 4 * time.Second}
	c.client = &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{
		DialContext: dial.DialContext, MaxIdleConnsPerHost: 64}}
	c.paused.Store(env("PAUSED", "") != "")
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, c.stats()) })
	mux.HandleFunc("POST /pause", func(w http.ResponseWriter, _ *http.Request) { c.pause(); sendJSON(w, c.stats()) })
	mux.HandleFunc("POST /resume", func(w http.ResponseWriter, _ *http.Request) { c.resume(); sendJSON(w, c.stats()) })
	go c.resolveAgain()
	go c.run(time.Second / time.Duration(rate))
	return nil
}

// pause stops requests and waits until those in flight have ended.
func (c *client) pause() {
	c.begin.Lock()
	c.paused.Store(true)
	c.begin.Unlock()
	c.running.Wait()
}

func (c *client) resume() {
	c.mu.Lock()
	c.since = window{}
	c.mu.Unlock()
	c.paused.Store(false)
}

// resolveAgain closes idle connections every 5 s, for the life of the process: a sidecar
// that comes back gets its share of the requests only from clients that look up the name
// again.
func (c *client) resolveAgain() {
	for range time.Tick(5 * time.Second) {
		c.client.CloseIdleConnections()
	}
}

// run goes on for the life of the process.
func (c *client) run(every time.Duration) {
	tick := time.NewTicker(every)
	for n := 0; ; n++ {
		<-tick.C
		c.begin.Lock()
		if !c.paused.Load() {
			c.running.Go(func() { c.send(n) })
		}
		c.begin.Unlock()
	}
}

// request returns request n. Of ten, seven are GETs, one a PUT, one a POST with a key, and one a POST
// without one, which nobody may retry after it was sent.
func (c *client) request(n int) (r *http.Request, safe bool, err error) {
	method, key := http.MethodGet, ""
	switch n % 10 {
	case 3:
		method = http.MethodPut
	case 6, 9:
		method = http.MethodPost
	}
	if n%10 == 6 {
		key = `"` + strconv.FormatInt(time.Now().UnixNano(), 36) + `"`
	}
	var body io.Reader
	if method != http.MethodGet {
		body = strings.NewReader("amount=1&of=shoes")
	}
	r, err = http.NewRequestWithContext(context.Background(), method, c.target+"/orders/"+strconv.Itoa(n), body)
	if err == nil && key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r, method != http.MethodPost || key != "", err
}

func (c *client) send(n int) {
	r, safe, err := c.request(n)
	began := time.Now()
	f := failure{Began: began, Path: "/orders/" + strconv.Itoa(n), Safe: safe}
	if err == nil {
		f.Method = r.Method
		f.Code, f.Why, err = c.ask(r)
	}
	if err != nil {
		f.Why = err.Error()
	}
	f.Took = time.Since(began).Seconds()
	if f.Code != 0 {
		c.codes.add(kind(f.Method, safe), f.Code)
	}
	c.note(&f, err != nil)
}

// kind returns the method, with a mark for a POST with a key.
func kind(method string, safe bool) string {
	if method == http.MethodPost && safe {
		return "POST+key"
	}
	return method
}

// ask sends the request and reads the response whole; a response cut off is an error.
func (c *client) ask(r *http.Request) (code int, why string, err error) {
	response, err := c.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	why = response.Header.Get("X-Retryproxy-Reason") + ", attempts: " + response.Header.Get("X-Retryproxy-Attempts") + "; " + strings.TrimSpace(string(body))
	return response.StatusCode, why, err
}

func (c *client) note(f *failure, unanswered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since.Sent++
	if f.Safe {
		c.since.Slowest = max(c.since.Slowest, f.Took)
	}
	if unanswered {
		c.errors++
	}
	if (f.Code != http.StatusOK || unanswered) && len(c.since.Failures) < keptFailures {
		c.since.Failures = append(c.since.Failures, *f)
	}
}

func (c *client) stats() map[string]any {
	codes := c.codes.all()
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.since
	since.Failures = append([]failure{}, since.Failures...)
	return map[string]any{"answered": codes, "unanswered": c.errors, "since_resume": since}
}

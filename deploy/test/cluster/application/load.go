package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxRate and maxTime bound what a load may do: it is for one node.
const (
	maxRate = 2000
	maxTime = 5 * time.Minute
)

// report is what a load saw.
type report struct {
	Sent    int            `json:"sent"`
	Failed  int            `json:"failed"`
	By      map[string]int `json:"by"`      // failures by their kind
	Seconds int            `json:"seconds"` // in which at least one request failed
	P50     float64        `json:"p50"`     // of good responses, in milliseconds
	P99     float64        `json:"p99"`
	Max     float64        `json:"max"`
	Slow    []string       `json:"slow"` // the first good responses that took seconds, and when
}

// load sends requests at a steady pace until it is told to stop. Every second request has a
// connection of its own, the others share kept ones: clients do both.
type load struct {
	stop, done chan struct{}
	began      time.Time
	asking     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	report  report
	failing map[int]bool // seconds since began
	took    []float64
}

func start(url string, rate int) *load {
	l := &load{stop: make(chan struct{}), done: make(chan struct{}), began: time.Now(), failing: map[int]bool{}}
	l.report.By = map[string]int{}
	kept := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	fresh := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		end := time.After(maxTime)
		for n := 0; ; n++ {
			select {
			case <-l.stop:
			case <-end:
			case <-tick.C:
				client := kept
				if n%2 == 0 {
					client = fresh
				}
				l.asking.Go(func() { l.note(client, url) })
				continue
			}
			l.asking.Wait()
			return
		}
	}()
	return l
}

func (l *load) note(client *http.Client, url string) {
	began := time.Now()
	problem := ask(client, url)
	took := float64(time.Since(began).Microseconds()) / 1000
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Sent++
	if problem == "" {
		l.took = append(l.took, took)
		if took > 2000 && len(l.report.Slow) < 20 {
			own := map[bool]string{true: "own", false: "kept"}[client.Transport.(*http.Transport).DisableKeepAlives]
			l.report.Slow = append(l.report.Slow, fmt.Sprintf("%s connection at %.1f s: %.1f s", own, began.Sub(l.began).Seconds(), took/1000))
		}
		return
	}
	l.report.Failed++
	l.report.By[problem]++
	l.failing[int(began.Sub(l.began).Seconds())] = true
}

// end waits for the last response.
func (l *load) end() report {
	close(l.stop)
	<-l.done
	r := l.report
	r.Seconds = len(l.failing)
	slices.Sort(l.took)
	if n := len(l.took); n > 0 {
		r.P50, r.P99, r.Max = l.took[n/2], l.took[n*99/100], l.took[n-1]
	}
	return r
}

// ask returns what was wrong in few words, "" if the response is good.
func ask(client *http.Client, url string) string {
	response, err := client.Get(url)
	if err != nil {
		return kind(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return kind(err)
	case response.StatusCode != http.StatusOK:
		return fmt.Sprint(response.StatusCode)
	case strings.TrimSpace(string(body)) != "ok":
		return "another body"
	}
	return ""
}

func kind(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH):
		return "no route"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
		return "cut off"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return err.Error()
}

// orders is the client as a server, which tests tell what to do: POST /start?url=U&rate=R,
// POST /stop, which answers with the report, and POST /attack?at=HOST:PORT&for=D.
func orders() http.Handler {
	var mu sync.Mutex
	var running *load
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		rate, err := strconv.Atoi(r.URL.Query().Get("rate"))
		if err != nil || rate < 1 || rate > maxRate || running != nil {
			http.Error(w, "no such rate, or a load runs already", http.StatusBadRequest)
			return
		}
		running = start(r.URL.Query().Get("url"), rate)
	})
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if running == nil {
			http.Error(w, "no load runs", http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(running.end())
		running = nil
	})
	mux.HandleFunc("POST /attack", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil || d > maxTime {
			http.Error(w, "no such time", http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, attack(r.URL.Query().Get("at"), d))
	})
	return mux
}

// attack holds connections that never finish: most with half a request's headers, some with a body
// that comes slowly after most of it came at once. It returns how many it had.
func attack(address string, d time.Duration) (held int) {
	const slowHeaders, slowBodies, body = 2000, 200, 900 << 10
	end := time.Now().Add(d)
	var all sync.WaitGroup
	var mu sync.Mutex
	hold := func(first []byte) {
		all.Go(func() {
			c, err := net.DialTimeout("tcp", address, 5*time.Second)
			if err != nil {
				return
			}
			defer c.Close() //nolint:errcheck // nothing to save
			mu.Lock()
			held++
			mu.Unlock()
			_ = c.SetDeadline(end)
			if _, err := c.Write(first); err != nil {
				return
			}
			for time.Now().Before(end) {
				time.Sleep(time.Second)
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
			}
		})
	}
	for range slowHeaders {
		hold([]byte("GET /slow HTTP/1.1\r\nHost: shop\r\nX-Pad: "))
	}
	for range slowBodies {
		hold(append(fmt.Appendf(nil, "PUT /?delay=1s HTTP/1.1\r\nHost: shop\r\nContent-Length: %d\r\n\r\n", 1<<20), make([]byte, body)...))
	}
	all.Wait()
	return held
}

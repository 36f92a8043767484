package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Bounds of the traffic.
const (
	maxUnderWay    = 512              // requests at once, both sides together; beyond it the next ones are sent later
	clientPatience = 40 * time.Second // longer than the proxy's request timeout
	lastAnswers    = 5 * time.Second  // in traffic.lastAnswers; longer than most waits for a Retry-After of 1 s
	maxUpload      = 32 << 10         // bytes
)

// call is one request of the traffic.
type call struct {
	number uint64
	method string
	path   string
	body   []byte
}

// traffic sends the same requests at the same moments to both sides.
type traffic struct {
	seed   uint64
	rate   int // requests a second to each side
	base   [numSides]string
	client *http.Client

	lastAnswers time.Duration // how long the requests in flight at the end may take
	bytes       []byte        // where bodies are cut from

	tally   [numSides]tally
	slots   chan struct{}
	running sync.WaitGroup
}

// newTraffic: no connection is kept, because net/http's client retries
// requests by itself when a kept one was reset, and the side without retries
// is to be without them.
func newTraffic(seed uint64, rate int, upstream, proxy string) *traffic {
	t := &traffic{
		seed:        seed,
		rate:        rate,
		lastAnswers: lastAnswers,
		base:        [numSides]string{direct: upstream, proxied: proxy},
		bytes:       make([]byte, maxUpload),
		slots:       make(chan struct{}, maxUnderWay),
		client: &http.Client{
			Timeout:   clientPatience,
			Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		},
	}
	r := draw(seed, bodyStream, 0)
	for i := range t.bytes {
		t.bytes[i] = byte(r.Uint32())
	}
	return t
}

// run sends until until ends, then waits a while for the responses still to
// come. When ctx ends it ends at once. What has no response then is not counted.
func (t *traffic) run(ctx, until context.Context) {
	sending, cancel := context.WithCancel(ctx)
	defer t.running.Wait()
	defer cancel()
	pace := time.NewTicker(time.Second / time.Duration(t.rate))
	defer pace.Stop()
	for number := uint64(1); t.room(until); number++ {
		c := t.call(number)
		t.send(sending, direct, c)
		t.send(sending, proxied, c)
		select {
		case <-pace.C:
		case <-until.Done():
		}
	}
	select {
	case <-t.finished():
	case <-time.After(t.lastAnswers):
	}
}

// finished is closed when no request is in flight any more. No request may be
// begun after the call.
func (t *traffic) finished() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		t.running.Wait()
		close(done)
	}()
	return done
}

// call number n, always the same one for a seed.
func (t *traffic) call(n uint64) call {
	r := draw(t.seed, callStream, n)
	switch sort := r.IntN(10); {
	case sort < 6:
		return call{n, "GET", fmt.Sprintf("/search/%d", r.IntN(1000)), nil}
	case sort < 8:
		return call{n, "PUT", fmt.Sprintf("/upload/%d", r.IntN(1000)), t.bytes[:1+r.IntN(maxUpload)]}
	default:
		return call{n, "POST", "/checkout", t.bytes[:200]}
	}
}

// room waits until a request may go to each side; false when until has ended.
func (t *traffic) room(until context.Context) bool {
	for range numSides {
		select {
		case t.slots <- struct{}{}:
		case <-until.Done():
		}
	}
	return until.Err() == nil
}

// send sends c in the background, for which there has to be room.
func (t *traffic) send(ctx context.Context, s side, c call) {
	t.running.Go(func() {
		began := time.Now()
		k := t.ask(ctx, s, c)
		if ctx.Err() == nil {
			t.tally[s].add(k, time.Since(began))
		}
		<-t.slots
	})
}

// ask sends c and tells what came of it.
func (t *traffic) ask(ctx context.Context, s side, c call) kind {
	r, err := http.NewRequestWithContext(ctx, c.method, t.base[s]+c.path, bytes.NewReader(c.body))
	if err != nil {
		return other
	}
	r.Header.Set(requestField, strconv.FormatUint(c.number, 10))
	resp, err := t.client.Do(r)
	if err != nil {
		return kindOfError(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return kindOfError(err)
	}
	return kindOfAnswer(resp.StatusCode, body, c)
}

func kindOfAnswer(status int, body []byte, c call) kind {
	switch status {
	case http.StatusOK:
		var a answer
		if json.Unmarshal(body, &a) == nil && a.Path == c.path && a.Bytes == len(c.body) && a.Sum == crc32.ChecksumIEEE(c.body) {
			return success
		}
	case http.StatusTooManyRequests:
		return status429
	case http.StatusBadGateway:
		return status502
	case http.StatusServiceUnavailable:
		return status503
	}
	return other
}

func kindOfError(err error) kind {
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return broken
		}
	}
	return other
}

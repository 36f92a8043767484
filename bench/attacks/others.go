package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// others are the clients that do no harm.
type others struct {
	http1, http2 *http.Client
	scheme       string

	mu     sync.Mutex // guards all below
	took   []time.Duration
	failed int
	first  string // of what failed
}

// othersOf each protocol, each with a request every othersEvery or as fast as
// the proxy answers; their patience is what they wait for a response.
const (
	othersOf    = 4
	othersEvery = 2 * time.Millisecond
	patience    = 30 * time.Second
)

// newOthers come over TLS if secure, whatever the certificate.
func newOthers(secure bool) *others {
	client := func(two bool) *http.Client {
		t := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: othersOf}
		t.Protocols.SetHTTP1(!two)
		t.Protocols.SetUnencryptedHTTP2(two && !secure)
		t.Protocols.SetHTTP2(two && secure)
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is signed by itself
		return &http.Client{Transport: t, Timeout: patience}
	}
	o := &others{http1: client(false), http2: client(true), scheme: "http"}
	if secure {
		o.scheme = "https"
	}
	return o
}

func (o *others) close() {
	o.http1.CloseIdleConnections()
	o.http2.CloseIdleConnections()
}

// call sends requests until ctx ends and gives what became of them.
func (o *others) call(ctx context.Context, addr string) service {
	o.took, o.failed, o.first = nil, 0, ""
	var all sync.WaitGroup
	for range othersOf {
		for _, c := range []*http.Client{o.http1, o.http2} {
			all.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					err := ask(c, o.scheme+"://"+addr)
					o.note(time.Since(began), err)
					select {
					case <-ctx.Done():
					case <-time.After(othersEvery):
					}
				}
			})
		}
	}
	all.Wait()
	return o.sum()
}

// ask sends one request, whole whatever ends meanwhile.
func ask(c *http.Client, base string) error {
	target := "/ok?" + strconv.FormatUint(rand.Uint64(), 36)
	res, err := c.Get(base + target)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK || string(b) != good:
		return fmt.Errorf("%s: %d %.200q", res.Proto, res.StatusCode, b)
	case res.Header.Get(askedField) != target:
		return fmt.Errorf("%s: an answer to %q instead of %q", res.Proto, res.Header.Get(askedField), target)
	}
	return nil
}

func (o *others) note(d time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took = append(o.took, d)
	if err != nil {
		if o.failed++; o.failed == 1 {
			o.first = err.Error()
		}
	}
}

// service is how the others were served.
type service struct {
	Requests int           `json:"requests"`
	Failed   int           `json:"failed"`
	First    string        `json:"first_failure,omitempty"`
	P99      time.Duration `json:"p99_ns"`
}

func (o *others) sum() service {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := service{Requests: len(o.took), Failed: o.failed, First: o.first}
	if len(o.took) > 0 {
		slices.Sort(o.took)
		s.P99 = o.took[len(o.took)*99/100]
	}
	return s
}

package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
)

// asking is the key of a job in the context of a request.
type asking struct{}

// ask is what the headers of a request say to the provider.
type ask struct {
	job  int
	calm bool
}

// asks returns a context whose requests are those of a job.
func asks(ctx context.Context, j job, calm bool) context.Context {
	return context.WithValue(ctx, asking{}, ask{j.number, calm})
}

// tee is an http.RoundTripper that keeps each body as it comes from the network, before a client of
// the vendor reads it. It is safe for concurrent use.
type tee struct {
	under http.RoundTripper
	addrs []string // each request goes to one of them

	mu  sync.Mutex // guards got
	got map[string]body
}

func newTee(addrs ...string) *tee {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // it would change the bodies
	t.Proxy = nil
	t.MaxIdleConnsPerHost = 100
	return &tee{under: t, addrs: addrs, got: map[string]body{}}
}

// RoundTrip reads the bodies of errors at once, as the vendors' clients leave those unread that they retry.
func (t *tee) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = t.addrs[rand.IntN(len(t.addrs))]
	a := r.Context().Value(asking{}).(ask)
	r.Header.Set(jobHeader, strconv.Itoa(a.job))
	if a.calm {
		r.Header.Set(calmHeader, "1")
	}
	res, err := t.under.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	id := res.Header.Get(responseHeader)
	if id == "" { // a proxy's own, or a calm one
		return res, nil
	}
	b := &teeBody{in: res.Body, keep: func(b body) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.got[id] = b
	}}
	res.Body = b
	if res.StatusCode >= 400 {
		text, err := io.ReadAll(b)
		_ = b.Close()
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(text))
	}
	return res, nil
}

// teeBody keeps what is read from it. It belongs to one goroutine.
type teeBody struct {
	in   io.ReadCloser
	text []byte
	err  error
	keep func(body) // nil: it is closed
}

func (b *teeBody) Read(p []byte) (n int, err error) {
	if b.err == nil {
		n, b.err = b.in.Read(p)
		b.text = append(b.text, p[:n]...)
	}
	return n, b.err
}

// Close reads the rest first: clients stop at the last event, which may not be the last byte.
func (b *teeBody) Close() error {
	if b.keep == nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, b) // its error is kept
	b.keep(body{b.text, b.err == io.EOF})
	b.keep = nil
	return b.in.Close()
}

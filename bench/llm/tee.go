package main

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
)

// tee is an http.RoundTripper that keeps a digest of each body as it comes from the network,
// before a client of the vendor reads it. It is safe for concurrent use.
type tee struct {
	under http.RoundTripper
	addrs []string // of several proxies: each request goes to one of them; set before the first request

	mu  sync.Mutex // guards got
	got map[string]body
}

func newTee() *tee {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // it would change the bodies
	t.Proxy = nil
	t.MaxIdleConnsPerHost = 100
	return &tee{under: t, got: map[string]body{}}
}

// RoundTrip reads the bodies of errors at once, as the vendors' clients leave those unread that they retry.
func (t *tee) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(t.addrs) > 1 {
		r = r.Clone(r.Context())
		r.URL.Host = t.addrs[rand.IntN(len(t.addrs))]
	}
	res, err := t.under.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	id := res.Header.Get(responseHeader)
	if id == "" { // a proxy's own, or a calm one
		return res, nil
	}
	b := &teeBody{in: res.Body, sum: sha256.New(), done: func(b body) { t.keep(id, b) }}
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

func (t *tee) keep(id string, b body) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got[id] = b
}

// all returns what was got, by X-Response-Id. Call it after all bodies are closed.
func (t *tee) all() map[string]body {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.got
}

// teeBody digests what is read from it. It belongs to one goroutine.
type teeBody struct {
	in   io.ReadCloser
	sum  hash.Hash
	seen body
	err  error
	done func(body)
}

func (b *teeBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.in.Read(p)
	b.sum.Write(p[:n])
	b.seen.bytes += n
	b.err = err
	return n, err
}

// Close reads the rest first: clients stop at the last event, which may not be the last byte.
func (b *teeBody) Close() error {
	if b.done == nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, b) // its error is kept
	b.seen.whole = b.err == io.EOF
	b.sum.Sum(b.seen.sum[:0])
	b.done(b.seen)
	b.done = nil
	return b.in.Close()
}

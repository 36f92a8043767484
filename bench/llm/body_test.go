package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// filler is an endless text inside of a JSON string.
type filler struct{}

func (filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// A body of 2 GiB passes through a route that looks for the model in it and has a token limit. It
// arrives whole, and the proxy needs no memory for it.
func TestABodyOfTwoGiBIsStreamed(t *testing.T) {
	const size, mostMemory = 2 << 30, 64 << 20
	var b rig.Bed
	defer b.End()
	var got atomic.Int64
	upstream := b.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Store(n)
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("X-Path", r.URL.Path)
		fmt.Fprintf(w, `{"usage":{"prompt_tokens":10,"completion_tokens":1}}`)
	}))
	p, err := b.Start(t.Context(), rig.Spec{Program: program, Upstream: "http://" + upstream, Env: []string{
		"RETRYPROXY_PROFILE=llm", "RETRYPROXY_RATE_LIMIT_KEY=json:model", "RETRYPROXY_TOKEN_LIMIT=1000000000/m",
		"RETRYPROXY_ROUTES=large", "RETRYPROXY_ROUTE_LARGE_MODEL=large", "RETRYPROXY_ROUTE_LARGE_UPSTREAM=http://" + upstream + "/large",
	}})
	if err != nil {
		t.Fatal(err)
	}
	begin, end := `{"model":"large","max_tokens":10,"messages":"`, `"}`
	body := io.MultiReader(strings.NewReader(begin), io.LimitReader(filler{}, size-int64(len(begin)+len(end))), strings.NewReader(end))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr+"/v1/messages", body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = size
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 || res.Header.Get("X-Path") != "/large/v1/messages" || got.Load() != size {
		t.Errorf("%d from %s, the upstream got %d bytes", res.StatusCode, res.Header.Get("X-Path"), got.Load())
	}
	l, err := p.Level()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peak of %d MiB", l.Peak>>20)
	if l.Peak > mostMemory || l.RetryBuffer != 0 {
		t.Errorf("peak of %d MiB, %d bytes in the retry buffer", l.Peak>>20, l.RetryBuffer)
	}
}

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// careless is a proxy that does what retryproxy must not do. It holds responses back until they are whole.
type careless struct {
	atOnce      bool // an error is repeated without a wait
	repeatsCuts bool // a response that was cut off is repeated
	changes     bool // a byte of each good body is changed
	hidesCuts   bool // what was cut off looks whole
}

const carelessAttempts = 3

func (c careless) start(_ context.Context, b *rig.Bed, provider string) ([]string, error) {
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	b.Later(transport.CloseIdleConnections)
	addr := b.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		for n := 1; ; n++ {
			res, text, err := send(transport, r, question, provider)
			again := n < carelessAttempts && (c.repeatsCuts && err != nil || c.atOnce && res != nil && res.StatusCode >= 400)
			if !again {
				c.respond(w, res, text, err)
				return
			}
		}
	}))
	return []string{addr}, nil
}

// send makes one attempt. res is nil if there was no response; text is what came of its body.
func send(t http.RoundTripper, r *http.Request, question []byte, provider string) (res *http.Response, text []byte, err error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", provider, ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(question)), int64(len(question))
	if res, err = t.RoundTrip(out); err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(res.Body)
	return res, text, err
}

func (c careless) respond(w http.ResponseWriter, res *http.Response, text []byte, err error) {
	if res == nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	if err != nil && c.hidesCuts {
		w.Header().Del("Content-Length")
	}
	if c.changes {
		text = []byte(strings.Replace(string(text), "word ", "Word ", 1))
	}
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(text)
	if err != nil && !c.hidesCuts {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

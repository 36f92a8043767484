package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"

	"github.com/retryproxy/retryproxy/proxy/errorbody"
)

// The vendors' clients read every response of retryproxy's own: its status, the type, the reason as the
// code, the text and the request id, whether they asked for a stream or not.
func TestVendorsClientsReadOwnErrors(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 405, 408, 411, 413, 414, 417, 421, 426, 429, 431, 500, 501, 502, 503, 504, 505, 529} {
		e := errorbody.Error{Status: status, Reason: "the_reason", Text: "the \"text\"", Attempts: 1, ID: "the-id"}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", errorbody.ModelAPI.ContentType())
			w.Header().Set("X-Request-Id", e.ID)
			w.Header().Set("Request-Id", e.ID)
			w.WriteHeader(status)
			_, _ = w.Write(e.Append(nil, errorbody.ModelAPI))
		}))
		to := server.Listener.Addr().String()
		for _, stream := range []bool{false, true} {
			var a *openai.Error
			if err := askOnce(t, newOpenAI(toAddress(to), 0), stream); !errors.As(err, &a) {
				t.Errorf("%d, openai: %v", status, err)
			} else if a.StatusCode != status || a.Type != errorbody.TypeOf(status) || a.Code != e.Reason || a.Message != "retryproxy: "+e.Text || a.Param != "" ||
				a.Response.Header.Get("X-Request-Id") != e.ID {
				t.Errorf("%d, openai: %+v", status, a)
			}
			var b *anthropic.Error
			if err := askOnce(t, newAnthropic(toAddress(to), 0), stream); !errors.As(err, &b) {
				t.Errorf("%d, anthropic: %v", status, err)
			} else if b.StatusCode != status || string(b.Type()) != errorbody.TypeOf(status) || b.RequestID != e.ID {
				t.Errorf("%d, anthropic: %+v", status, b)
			}
		}
		server.Close()
	}
}

func askOnce(t *testing.T, v vendor, stream bool) error {
	ask := v.whole
	if stream {
		ask = v.stream
	}
	return ask(t.Context(), 8, func(string) {})
}

// toAddress sends every request to one address.
type toAddress string

// RoundTrip implements http.RoundTripper.
func (to toAddress) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = string(to)
	return http.DefaultTransport.RoundTrip(r)
}

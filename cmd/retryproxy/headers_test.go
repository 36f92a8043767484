package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Headers are set and removed in both directions, for upstreams of both protocols and in the
// proxy's own responses. A changed file of secrets is reloaded automatically.
func TestHeadersAreSetAndRemovedOnTheWay(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			var seen atomic.Pointer[http.Header]
			var failing atomic.Bool
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen.Store(&r.Header)
				if failing.Load() {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Server", "secret/1.0")
				_, _ = io.WriteString(w, "ok")
			}))
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			t.Cleanup(server.Close)
			file := filepath.Join(t.TempDir(), "secrets")
			write := func(key string) {
				if err := os.WriteFile(file, []byte("authorization: Bearer "+key+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("hidden-1")
			p := startProxy(t, "UPSTREAM="+strings.Replace(server.URL, "http", scheme, 1), "REQUEST_HEADERS_SET=X-Env: prod", "REQUEST_HEADERS_REMOVE=cookie", "REQUEST_HEADERS_FILE="+file,
				"RESPONSE_HEADERS_SET=Strict-Transport-Security: max-age=1, preload", "RESPONSE_HEADERS_REMOVE=Server", "MAX_RETRIES=0", "ACCESS_LOG=true")
			ask := func() *http.Response {
				r, err := http.NewRequest("GET", "http://"+p.listen[0]+"/", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header = http.Header{"X-Env": {"theirs", "twice"}, "Cookie": {"a=b"}, "Authorization": {"Bearer client"}, "X-Kept": {"1"}}
				response, err := p.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				return response
			}
			check := func(status int, key string) {
				t.Helper()
				response, h := ask(), *seen.Load()
				if response.StatusCode != status || response.Header.Get("Strict-Transport-Security") != "max-age=1, preload" || response.Header["Server"] != nil {
					t.Errorf("the client got %d %v", response.StatusCode, response.Header)
				}
				if len(h["X-Env"]) != 1 || h.Get("X-Env") != "prod" || h["Cookie"] != nil || h.Get("X-Kept") != "1" || len(h["Authorization"]) != 1 || h.Get("Authorization") != "Bearer "+key {
					t.Errorf("the upstream got %v", h)
				}
			}
			check(200, "hidden-1")
			write("hidden-2")
			p.await("the changed file", func() bool { ask(); return seen.Load().Get("Authorization") == "Bearer hidden-2" })
			failing.Store(true)
			check(502, "hidden-2")
			if _, config := p.ask("/config"); strings.Contains(config, "hidden-") || !strings.Contains(config, file) {
				t.Errorf("/config shows %s", config)
			}
			if strings.Contains(p.log.String(), "hidden-") {
				t.Errorf("the log has a secret:\n%s", p.log)
			}
		})
	}
}

// Interim responses and trailers, in both directions, contain nothing that the settings hide.
func TestHiddenHeadersAreInNoOtherPartOfAMessage(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("X-Internal", "secret")
				w.Header().Set("Link", "</a>")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("Trailer", "X-Internal-Sum, X-Sum")
				w.Header().Set("X-Saw", strings.Join(append(r.Trailer["X-User"], r.Trailer["X-Kept"]...), ","))
				_, _ = io.WriteString(w, "ok")
				w.Header().Set("X-Internal-Sum", "secret")
				w.Header().Set("X-Sum", "1")
			}))
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			t.Cleanup(server.Close)
			p := startProxy(t, "UPSTREAM="+strings.Replace(server.URL, "http", scheme, 1), "REQUEST_HEADERS_REMOVE=X-User", "RESPONSE_HEADERS_REMOVE=X-Internal,X-Internal-Sum")
			var interim textproto.MIMEHeader
			trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { interim = h; return nil }}
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", "http://"+p.listen[0]+"/", io.MultiReader(bytes.NewReader([]byte("a"))))
			if err != nil {
				t.Fatal(err)
			}
			r.Trailer = http.Header{"X-User": {"admin"}, "X-Kept": {"1"}}
			response, err := p.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || string(body) != "ok" || interim.Get("Link") != "</a>" || response.Trailer.Get("X-Sum") != "1" || response.Header.Get("X-Saw") != "1" {
				t.Errorf("%q %v: interim %v, %v, trailers %v", body, err, interim, response.Header, response.Trailer)
			}
			if interim["X-Internal"] != nil || response.Trailer.Get("X-Internal-Sum") != "" || response.Header["X-Internal"] != nil {
				t.Errorf("the client got interim %v, %v, trailers %v", interim, response.Header, response.Trailer)
			}
		})
	}
}

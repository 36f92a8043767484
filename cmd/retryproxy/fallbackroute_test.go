package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second account for the same API serves the requests when the credit of the first one is used
// up.
func TestASecondKeyServesWhenTheFirstIsUsedUp(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer second" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(429)
			_, _ = io.WriteString(w, `{"error":{"code":"insufficient_quota"}}`)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(api.Close)
	env := []string{"UPSTREAM=" + api.URL, "PROFILE=llm", "FALLBACK=route:second", "ROUTES=second"}
	for name, variable := range map[string]string{"first": "REQUEST_HEADERS_FILE", "second": "ROUTE_SECOND_REQUEST_HEADERS_FILE"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte("Authorization: Bearer "+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		env = append(env, variable+"="+file)
	}
	p := startProxy(t, env...)
	response, body := p.post("/v1/chat/completions", "hello")
	if response.StatusCode != 200 || body != "hello" || response.Header.Get("X-Retryproxy-Fallback") != "upstream" || response.Header.Get("X-Retryproxy-Reason") != "quota_exhausted" {
		t.Errorf("%d %q %v", response.StatusCode, body, response.Header)
	}
}

func (p *process) post(path, body string) (*http.Response, string) {
	p.t.Helper()
	response, err := p.client.Post("http://"+p.listen[0]+path, "text/plain", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	got, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response, string(got)
}

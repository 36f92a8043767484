package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// backends are servers of one upstream. Each answers with its index.
func backends(t *testing.T, n int) (upstream string) {
	t.Helper()
	var urls []string
	for i := range n {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, i)
		}))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	return strings.Join(urls, ",")
}

// served asks n times as each user, and returns how many requests each backend got.
func (p *process) served(n int, user string) map[string]int {
	p.t.Helper()
	at := map[string]int{}
	for range n {
		r, err := http.NewRequest("GET", "http://"+p.listen[0]+"/", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if user != "" {
			r.Header.Set("X-User", user)
		}
		response, err := p.client.Do(r)
		if err != nil {
			p.t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != 200 {
			p.t.Fatal(response.StatusCode, err)
		}
		at[string(body)]++
	}
	return at
}

func TestAUserStaysWithAnEndpoint(t *testing.T) {
	upstream := backends(t, 3)
	p := startProxy(t, "UPSTREAM="+upstream, "BALANCE=hash:X-User")
	used := map[string]bool{}
	for user := range 20 {
		at := p.served(5, fmt.Sprint("user", user))
		if len(at) != 1 {
			t.Errorf("user %d: %v", user, at)
		}
		for addr := range at {
			used[addr] = true
		}
	}
	if len(used) != 3 {
		t.Errorf("20 users use %v", used)
	}
	if at := p.served(60, ""); len(at) != 3 {
		t.Errorf("without the header: %v", at)
	}
}

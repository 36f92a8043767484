package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// All requests come from loopback, so only the Host header shows whether a network is allowed, and
// only the token whether a client is.
func TestTheAdminListenerIsOpenedBySettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	const first, second = "0123456789abcdef", "fedcba9876543210"
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first)
	p := startProxy(t, "UPSTREAM=http://127.0.0.1:1", "ADMIN_ALLOW=127.0.0.0/8", "ADMIN_TOKEN_FILE="+file)
	status := func(host, token string) int {
		r, err := http.NewRequest("GET", "http://"+p.admin+"/config", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := p.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := status("10.0.0.1", ""); got != 200 {
		t.Errorf("from an allowed network: %d", got)
	}
	if got := status("proxy.example", ""); got != 401 {
		t.Errorf("without the token: %d", got)
	}
	if got := status("proxy.example", first); got != 200 {
		t.Errorf("with the token: %d", got)
	}
	write(second)
	if old, now := status("proxy.example", first), status("proxy.example", second); old != 401 || now != 200 {
		t.Errorf("after a change of the token: %d with the old one, %d with the new one", old, now)
	}
}

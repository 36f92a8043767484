package admin

import (
	"fmt"
	"strings"
	"testing"
)

// postPercent is the request that changes the percentage.
func postPercent(body string, fields ...string) string {
	return fmt.Sprintf("POST /retry-percent HTTP/1.1\n%s\nContent-Length: %d\n", strings.Join(fields, "\n"), len(body))
}

// sendBody is send for a request with a body.
func sendBody(t *testing.T, addr, head, body string) (int, string) {
	t.Helper()
	return send(t, "tcp", addr, head+"Connection: close\n\n"+body)
}

func TestRetryPercentIsShownAndChanged(t *testing.T) {
	s := start(t, "tcp", "127.0.0.1:0")
	s.percent.Store(100)
	if status, body := send(t, "tcp", s.addr, "GET /retry-percent HTTP/1.1\nHost: localhost\n"); status != 200 || body != "100\n" {
		t.Errorf("%d %q", status, body)
	}
	for body, want := range map[string]int32{"0": 0, "30": 30, " 7\n": 7, "100": 100} {
		status, said := sendBody(t, s.addr, postPercent(body, "Host: localhost", "Content-Type: application/json; charset=utf-8"), body)
		if status != 200 || said != fmt.Sprintf("%d\n", want) || s.percent.Load() != want {
			t.Errorf("%q: %d %q, now %d", body, status, said, s.percent.Load())
		}
	}
}

func TestRetryPercentRefuses(t *testing.T) {
	const json = "Content-Type: application/json"
	s := start(t, "tcp", "127.0.0.1:0")
	for _, tc := range []struct {
		name, head, body string
		want             int
	}{
		{"a number beyond", postPercent("101", "Host: localhost", json), "101", 400},
		{"a negative number", postPercent("-1", "Host: localhost", json), "-1", 400},
		{"a fraction", postPercent("1.5", "Host: localhost", json), "1.5", 400},
		{"nothing", postPercent("", "Host: localhost", json), "", 400},
		{"a word", postPercent("off", "Host: localhost", json), "off", 400},
		{"a long number", postPercent(strings.Repeat("0", 200)+"1", "Host: localhost", json), strings.Repeat("0", 200) + "1", 400},
		{"no type", postPercent("3", "Host: localhost"), "3", 415},
		{"a type that a form sends", postPercent("3", "Host: localhost", "Content-Type: application/x-www-form-urlencoded"), "3", 415},
		{"another that a form sends", postPercent("3", "Host: localhost", "Content-Type: text/plain"), "3", 415},
		{"another method", "PUT /retry-percent HTTP/1.1\nHost: localhost\n" + json + "\nContent-Length: 1\n", "3", 405},
		{"a name that is rebound", postPercent("3", "Host: evil.example", json), "3", 403},
		{"another site", postPercent("3", "Host: localhost", json, "Origin: http://evil.example"), "3", 403},
		{"another site, without Origin", postPercent("3", "Host: localhost", json, "Sec-Fetch-Site: cross-site"), "3", 403},
		{"through a proxy", postPercent("3", "Host: localhost", json, "X-Forwarded-For: 127.0.0.1"), "3", 403},
		{"reading from another site", "GET /retry-percent HTTP/1.1\nHost: localhost\nOrigin: http://evil.example\n", "", 403},
	} {
		if status, said := sendBody(t, s.addr, tc.head, tc.body); status != tc.want {
			t.Errorf("%s: %d %q, want %d", tc.name, status, said, tc.want)
		}
	}
	if n := s.changes.Load(); n != 0 {
		t.Errorf("%d changes", n)
	}
}

package demo

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startFlaky runs an upstream whose clock stands still inside a burst.
func startFlaky(t *testing.T) (*flaky, time.Duration) {
	t.Helper()
	f, err := newFlaky(5)
	if err != nil {
		t.Fatal(err)
	}
	at := moment(f.weather, true)
	f.clock = func() time.Duration { return at }
	served := make(chan struct{})
	go func() { defer close(served); f.serve() }()
	t.Cleanup(func() { f.close(); <-served })
	return f, at
}

// send sends a PUT of "hello" as the given attempt of a request with this fate.
func send(t *testing.T, f *flaky, at time.Duration, want fate, attempt uint64) (*http.Response, []byte, error) {
	t.Helper()
	n := uint64(1)
	for f.weather.fate(at, n, attempt) != want {
		n++
	}
	r, err := http.NewRequest("PUT", f.url()+"/upload/1", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(requestField, strconv.FormatUint(n, 10))
	if attempt > 1 {
		r.Header.Set("X-Retryproxy-Attempt", strconv.FormatUint(attempt, 10))
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

func TestEachFateOnTheWire(t *testing.T) {
	f, at := startFlaky(t)
	for _, c := range []struct {
		fate       fate
		status     int
		retryAfter string
	}{
		{fine, 200, ""},
		{slow, 200, ""},
		{unavailable, 503, ""},
		{throttled, 429, "1"},
	} {
		resp, body, err := send(t, f, at, c.fate, 1)
		if err != nil || resp.StatusCode != c.status || resp.Header.Get("Retry-After") != c.retryAfter {
			t.Errorf("fate %d: %v, error %v; want status %d, Retry-After %q", c.fate, resp, err, c.status, c.retryAfter)
			continue
		}
		var a answer
		if want := (answer{"/upload/1", 1, 5}); c.status == 200 && (json.Unmarshal(body, &a) != nil || a != want) {
			t.Errorf("fate %d: body %s, want %+v", c.fate, body, want)
		}
	}
	if _, _, err := send(t, f, at, cut, 1); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: error %v, want a connection reset", err)
	}
}

func TestSendsAreCountedBySide(t *testing.T) {
	f, at := startFlaky(t)
	for range 2 {
		_, _, _ = send(t, f, at, fine, 1)
	}
	_, body, err := send(t, f, at, fine, 3)
	var a answer
	if err != nil || json.Unmarshal(body, &a) != nil || a.Attempt != 3 {
		t.Errorf("body %s, error %v; want attempt 3", body, err)
	}
	if d, p := f.sends[direct].Load(), f.sends[proxied].Load(); d != 2 || p != 1 {
		t.Errorf("%d direct and %d proxied sends, want 2 and 1", d, p)
	}
}

func TestTooLargeBodyIsRefused(t *testing.T) {
	f, _ := startFlaky(t)
	resp, err := http.Post(f.url()+"/upload/1", "", strings.NewReader(strings.Repeat("x", maxBody+1)))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 400 {
		t.Errorf("status %d, want 400", resp.StatusCode)
	}
}

package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func startTestUpstream(t *testing.T) *upstream {
	t.Helper()
	bed := &rig.Bed{}
	t.Cleanup(bed.End)
	up := &upstream{line: rig.NewTimeline()}
	up.addr = bed.Serve(up)
	return up
}

func TestUpstreamSays429BeyondItsRateLimit(t *testing.T) {
	up := startTestUpstream(t)
	up.set(rig.NewBucket(0.001, 2, time.Now()))
	for i, want := range []int{200, 200, 429} {
		resp, err := http.Get("http://" + up.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
		}
		if after := resp.Header.Get("Retry-After"); want == 429 && after != "1000" {
			t.Errorf("Retry-After %q, want the 1000 s of a token", after)
		}
	}
	if got := up.line.Sum(0, time.Hour); got[sent] != 3 || got[turnedAway] != 1 {
		t.Errorf("counted %v", got)
	}
}

func TestATrapTellsOneAndSeesWhoComesNevertheless(t *testing.T) {
	up := startTestUpstream(t)
	at := time.Now()
	up.setTrap(2 * time.Second)
	for i, c := range []struct {
		after time.Duration
		want  int
	}{{0, 2}, {10 * time.Millisecond, 0}, {30 * time.Millisecond, 0}, {2 * time.Second, 0}} {
		if got := up.admit(at.Add(c.after)); got != c.want {
			t.Errorf("request %d is told %d, want %d", i, got, c.want)
		}
	}
	got, err := up.sprung()
	if err != nil || got.others != 2 || got.last.Sub(got.at) != 30*time.Millisecond {
		t.Errorf("%+v, %v", got, err)
	}
	up.setTrap(time.Second)
	if _, err := up.sprung(); err == nil {
		t.Error("a trap that nobody stepped into gave a result")
	}
}

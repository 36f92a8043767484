package clock

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

func TestDate(t *testing.T) {
	at := time.Date(1994, 11, 6, 9, 49, 37, 999, time.FixedZone("east", 3600)) // the example of RFC 9110, an hour east
	for range 2 {
		if got := string(Date(at)); got != "Sun, 06 Nov 1994 08:49:37 GMT" {
			t.Error(got)
		}
	}
	if got := string(Date(at.Add(time.Second))); got != "Sun, 06 Nov 1994 08:49:38 GMT" {
		t.Error(got)
	}
	if got := string(Date(at)); got != "Sun, 06 Nov 1994 08:49:37 GMT" {
		t.Error(got)
	}
}

func TestDateOfAnInstant(t *testing.T) {
	k := New()
	before := time.Now().Add(-time.Hour).Truncate(time.Second)
	got, err := http.ParseTime(string(k.Date(k.Now().Add(-time.Hour))))
	if after := time.Now().Add(-time.Hour); err != nil || got.Before(before) || got.After(after) {
		t.Errorf("%v, want %v to %v; %v", got, before, after, err)
	}
}

func TestDateIsSafeAndAllocatesNothingWithinASecond(t *testing.T) {
	at := time.Unix(1e9, 0)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 1000 {
				want := at.Add(time.Duration(i) * time.Second)
				if got, err := http.ParseTime(string(Date(want))); err != nil || !got.Equal(want) {
					t.Errorf("%v, want %v; %v", got, want, err)
				}
			}
		})
	}
	all.Wait()
	if n := testing.AllocsPerRun(100, func() { Date(at) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

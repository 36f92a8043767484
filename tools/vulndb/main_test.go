package main

import (
	"strings"
	"testing"
	"time"
)

func TestASnapshotIsNotUsedForEver(t *testing.T) {
	s := snapshot{Modified: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	if got, err := s.age(s.Modified.Add(oldest)); got != "2026-01-01, 180 days old" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.age(s.Modified.Add(oldest + time.Second)); err == nil || !strings.Contains(err.Error(), "more than 180; take a new one") {
		t.Errorf("%q, %v", got, err)
	}
}

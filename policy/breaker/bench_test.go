package breaker

import (
	"testing"
	"time"
)

func BenchmarkGuardClosed(b *testing.B) {
	g := New(Options{})
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		p, _ := g.Acquire(now, Request{})
		now += 10 * time.Microsecond
		g.Release(p, now, AttemptEnd{Status: 200})
	}
}
func BenchmarkGuardBound(b *testing.B) {
	g := New(Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 10})
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		p, _ := g.Acquire(now, Request{})
		now += 10 * time.Microsecond
		g.Release(p, now, AttemptEnd{Status: 200})
	}
}

package policy

import (
	"testing"
	"time"
)

func BenchmarkGuardOpen(b *testing.B) {
	g := NewGuard(GuardOptions{})
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		p, _ := g.Enter(now, Request{})
		now += 10 * time.Microsecond
		g.Leave(p, now, Ending{Status: 200})
	}
}
func BenchmarkGuardBound(b *testing.B) {
	g := NewGuard(GuardOptions{Limit: LimitFixed, Fixed: 10})
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		p, _ := g.Enter(now, Request{})
		now += 10 * time.Microsecond
		g.Leave(p, now, Ending{Status: 200})
	}
}

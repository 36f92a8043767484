package hedging

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// BenchmarkHedging asks an upstream that answers within 2 to 8 ms, but for two
// in a hundred answers that take 200 ms, for what hedging makes of it and what
// it costs. docs/how-to/hedging.md has the figures.
func BenchmarkHedging(b *testing.B) {
	for _, after := range []string{"off", "p90", "p95", "p99", "20ms"} {
		b.Run(after, func(b *testing.B) {
			u := peers.StartUpstream(b, func(c *peers.Conn) {
				for c.Head() != "" {
					d := 2*time.Millisecond + time.Duration(rand.Int64N(int64(6*time.Millisecond)))
					if rand.IntN(50) == 0 {
						d = 200 * time.Millisecond
					}
					if !c.Stays(d) {
						return
					}
					c.Say(peers.OK200)
				}
			})
			p := proxytest.Start(b, u, func(c *proxy.Config) {
				c.Default.HedgeAfter = peers.HedgeAfter(b, after)
				c.Default.NoBudget, c.Default.Budget = false, budget.Default()
			})
			askMany(b, p, 2000) // which teaches a percentile
			before := u.Sends()
			b.ResetTimer()
			took := askMany(b, p, b.N)
			b.StopTimer()
			slices.Sort(took)
			ms := func(share float64) float64 {
				return float64(took[int(share*float64(len(took)-1))]) / float64(time.Millisecond)
			}
			b.ReportMetric(ms(0.5), "p50-ms")
			b.ReportMetric(ms(0.95), "p95-ms")
			b.ReportMetric(ms(0.99), "p99-ms")
			b.ReportMetric(float64(u.Sends()-before)/float64(b.N), "sends/request")
		})
	}
}

// askMany asks n times over 16 connections and gives how long each took.
func askMany(b *testing.B, p *proxytest.Proxy, n int) []time.Duration {
	var next atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			nc, err := net.Dial("tcp", p.Addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer nc.Close()
			r := bufio.NewReader(nc)
			var took []time.Duration
			for next.Add(1) <= int64(n) {
				began := time.Now()
				_, _ = io.WriteString(nc, peers.Get("/"))
				res, err := http.ReadResponse(r, nil)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				took = append(took, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	wg.Wait()
	return all
}

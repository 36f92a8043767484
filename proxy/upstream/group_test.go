package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNetwork is a network in memory: hosts that accept or refuse, and a name.
type fakeNetwork struct {
	t  *testing.T
	mu sync.Mutex

	down        map[string]bool // addresses that refuse
	resolution  resolution      // for the name
	lookupCount int
	hang        chan struct{} // lookups wait until it is closed, or for their context; nil: they do not
	dialed      []string
}

// group stands for app.test:80 in the town.
func (w *fakeNetwork) group(o Options) *Group {
	w.t.Helper()
	target := Target{Network: "tcp", Address: "app.test:80", Dial: w.dial}
	target.Resolve = resolving(80).Resolve // not asked: find is replaced
	g := NewGroup(target, o)
	g.resolve = w.resolve
	w.t.Cleanup(g.Close)
	return g
}

func (w *fakeNetwork) dial(_ context.Context, _, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialed = append(w.dialed, addr)
	if w.down[addr] {
		return nil, errno("connect", syscall.ECONNREFUSED)
	}
	near, far := net.Pipe()
	w.t.Cleanup(func() { _ = far.Close() })
	return near, nil
}

func (w *fakeNetwork) resolve(ctx context.Context, _ *source) resolution {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookupCount++
	if hang := w.hang; hang != nil {
		w.mu.Unlock()
		defer w.mu.Lock()
		select {
		case <-hang:
		case <-ctx.Done():
			return resolution{err: ctx.Err()}
		}
	}
	return w.resolution
}

// name sets what the name stands for.
func (w *fakeNetwork) name(ttl time.Duration, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolution = resolution{ttl: ttl}
	for _, a := range addrs {
		w.resolution.addrs = append(w.resolution.addrs, resolvedAddr{a, 0, 1})
	}
}

func (w *fakeNetwork) refuse(down bool, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addrs {
		w.down[a] = down
	}
}

func (w *fakeNetwork) lookups() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lookupCount
}

func newFakeNetwork(t *testing.T, ttl time.Duration, addrs ...string) *fakeNetwork {
	w := &fakeNetwork{t: t, down: map[string]bool{}}
	w.name(ttl, addrs...)
	return w
}

// addresses are n addresses.
func addresses(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.0.0.%d:80", i+1))
	}
	return all
}

// endpoint of an address.
func (g *Group) endpoint(t *testing.T, addr string) *Endpoint {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.endpoints, func(m *Endpoint) bool { return m.addr == addr })
	if i < 0 {
		t.Fatalf("%s is no member", addr)
	}
	return g.endpoints[i]
}

// reached are the addresses that n requests with nothing else in flight go to.
func reached(t *testing.T, g *Group, n int, o GetOptions) map[string]int {
	t.Helper()
	at := map[string]int{}
	for range n {
		c := get(t, g, o)
		at[c.Addr]++
		c.Release(0)
	}
	return at
}

func TestTheLessBusyOfTwoIsChosen(t *testing.T) {
	const each = 100
	for seed := range uint64(10) {
		w := newFakeNetwork(t, time.Hour, addresses(4)...)
		g := w.group(Options{})
		g.random = rand.New(rand.NewPCG(seed, 1)).Uint32N
		at := map[string]int{}
		for range 4 * each {
			at[get(t, g, GetOptions{}).Addr]++
		}
		for addr, n := range at {
			if n < each-4 || n > each+4 {
				t.Errorf("seed %d: %s has %d requests in hand, want %d and at most 4 more or less: %v", seed, addr, n, each, at)
			}
		}
	}
}

func TestAnAddressThatWasBusyCatchesUp(t *testing.T) {
	w := newFakeNetwork(t, time.Hour, addresses(2)...)
	g := w.group(Options{})
	var first []*Conn
	for range 50 {
		first = append(first, get(t, g, GetOptions{}))
	}
	for _, c := range first {
		if c.Addr == addresses(2)[0] {
			c.Release(0)
		}
	}
	for range 25 {
		if c := get(t, g, GetOptions{}); c.Addr != addresses(2)[0] {
			t.Fatalf("a request went to %s, which has more in hand", c.Addr)
		}
	}
}

func TestWeightsHoldForFewAndForManyRequests(t *testing.T) {
	w := newFakeNetwork(t, time.Hour)
	w.resolution.addrs = []resolvedAddr{{"10.0.0.1:80", 1, 300}, {"10.0.0.2:80", 1, 100}, {"10.0.0.3:80", 2, 1000}}
	g := w.group(Options{})
	g.random = rand.New(rand.NewPCG(1, 1)).Uint32N
	if at := reached(t, g, 2000, GetOptions{}); at["10.0.0.1:80"] < 1400 || at["10.0.0.1:80"] > 1600 || at["10.0.0.3:80"] != 0 {
		t.Errorf("2000 requests one after the other, by weights 3 to 1: %v", at)
	}
	at := map[string]int{}
	for range 400 {
		at[get(t, g, GetOptions{}).Addr]++
	}
	if at["10.0.0.1:80"] < 290 || at["10.0.0.1:80"] > 310 || at["10.0.0.3:80"] != 0 {
		t.Errorf("400 requests at once, by weights 3 to 1: %v", at)
	}
}

func TestARetryUsesAnotherEndpoint(t *testing.T) {
	for n := 2; n < 5; n++ {
		w := newFakeNetwork(t, time.Hour, addresses(n)...)
		g := w.group(Options{})
		for _, avoid := range addresses(n) {
			at := reached(t, g, 60, GetOptions{Avoid: avoid})
			if at[avoid] != 0 || len(at) != n-1 {
				t.Errorf("of %d, avoiding %s: %v", n, avoid, at)
			}
		}
	}
}

func TestARetryUsesTheReserveEndpoint(t *testing.T) {
	w := newFakeNetwork(t, time.Hour)
	w.resolution.addrs = []resolvedAddr{{"10.0.0.1:80", 1, 1}, {"10.0.0.2:80", 2, 1}}
	g := w.group(Options{})
	if at := reached(t, g, 10, GetOptions{}); at["10.0.0.1:80"] != 10 {
		t.Errorf("%v", at)
	}
	if at := reached(t, g, 10, GetOptions{Avoid: "10.0.0.1:80"}); at["10.0.0.2:80"] != 10 {
		t.Errorf("retries: %v", at)
	}
	w.refuse(true, "10.0.0.1:80")
	if c := get(t, g, GetOptions{Fresh: true}); c.Addr != "10.0.0.2:80" {
		t.Errorf("the reserve was not dialled but %s", c.Addr)
	}
}

func TestEveryAddressIsDialledOnce(t *testing.T) {
	w := newFakeNetwork(t, time.Hour, addresses(9)...)
	w.refuse(true, addresses(9)...)
	g := w.group(Options{})
	fail(t, g, t.Context(), GetOptions{Avoid: addresses(9)[3]})
	if slices.Sort(w.dialed); !slices.Equal(w.dialed, addresses(9)) {
		t.Errorf("dialled %v", w.dialed)
	}
}

func TestAListOfAddressesIsOneUpstream(t *testing.T) {
	a, b := tcpServer(t), tcpServer(t)
	target, err := ParseTarget("http://" + a.addr.String() + ",http://" + b.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	g := NewGroup(target, Options{})
	t.Cleanup(g.Close)
	if at := reached(t, g, 50, GetOptions{}); len(at) != 2 || at[a.addr.String()]+at[b.addr.String()] != 50 {
		t.Errorf("reached %v", at)
	}
	if s := g.Stats(); s.Dials != 2 || s.Reuses != 48 {
		t.Errorf("%+v", s)
	}
	if g.lookup != nil || g.refreshTimer != nil {
		t.Error("a lookup where there is no name")
	}
}

func TestClosedGroupStillDialsButKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNetwork(t, time.Second, addresses(2)...)
		g := w.group(Options{})
		c := get(t, g, GetOptions{})
		get(t, g, GetOptions{}).Release(0)
		g.Close()
		c.Release(0)
		time.Sleep(time.Minute)
		if s, n := g.Stats(), w.lookups(); s.Idle != 0 || n != 1 {
			t.Errorf("%+v, %d lookups", s, n)
		}
		w.name(time.Second, "10.0.0.9:80")
		c = get(t, g, GetOptions{})
		if c.Release(0); c.Addr != "10.0.0.9:80" || g.Stats().Idle != 0 || g.Stats().Active != 0 {
			t.Errorf("%s, %+v", c.Addr, g.Stats())
		}
	})
}

func TestGroupConcurrentUse(t *testing.T) {
	w := newFakeNetwork(t, time.Millisecond, addresses(3)...)
	g := w.group(Options{Eject: Eject{For: time.Millisecond}})
	var all sync.WaitGroup
	for hand := range 8 {
		all.Go(func() {
			for i := range 300 {
				c := g.TryPooled(&GetOptions{})
				if c == nil {
					var err error
					if c, err = g.Get(context.Background(), GetOptions{ForceLookup: i%7 == 0}); err != nil {
						t.Error(err)
						return
					}
				}
				switch i % 3 {
				case 0:
					c.Endpoint.ReportFailure()
					c.Abort()
				default:
					c.Endpoint.ReportSuccess()
					c.Release(0)
				}
				if hand == 0 {
					w.name(time.Millisecond, addresses(3 + i%4)[i%3:]...)
					_, _ = g.Stats(), g.Endpoints()
				}
			}
		})
	}
	all.Wait()
	if s := g.Stats(); s.Active != 0 || s.Dialing != 0 {
		t.Errorf("%+v", s)
	}
}

func TestEndpointsHaveTheirOwnStatsUpToABound(t *testing.T) {
	w := newFakeNetwork(t, time.Hour, addresses(40)...)
	g := w.group(Options{})
	for range 400 {
		get(t, g, GetOptions{})
	}
	total := func() (attempts uint64, active int, each []EndpointStats) {
		each = g.Endpoints().Each
		for _, a := range each {
			attempts += a.Attempts
			active += a.Active
		}
		return attempts, active, each
	}
	attempts, active, each := total()
	if len(each) != maxLabelled+1 || each[maxLabelled].Addr != "" || attempts != 400 || active != 400 || g.Endpoints().Used != 40 {
		t.Errorf("%d shown, %d attempts, %d in hand: %+v", len(each), attempts, active, each)
	}
	others := each[maxLabelled].Attempts
	w.name(time.Hour, addresses(40)[20:]...)
	get(t, g, GetOptions{ForceLookup: true}).Release(0)
	_, _, each = total()
	if i := slices.IndexFunc(each, func(a EndpointStats) bool { return a.Addr == addresses(40)[0] }); i >= 0 || len(each) != 13 {
		t.Errorf("%d shown, an address that is gone at %d: %+v", len(each), i, each)
	}
	if last := each[len(each)-1]; last.Addr != "" || last.Attempts < others {
		t.Errorf("the others fell from %d to %+v", others, last)
	}
	if a, s := g.Endpoints(), g.Stats(); a.Draining != 20 || s.Dials+s.Reuses != 401 || s.Active != 400 {
		t.Errorf("%+v\n%+v", a, s)
	}
}

func TestCountersOutliveTheirEndpoint(t *testing.T) {
	w := newFakeNetwork(t, time.Hour, addresses(2)...)
	g := w.group(Options{})
	reached(t, g, 50, GetOptions{})
	w.name(time.Hour, "10.0.0.9:80")
	get(t, g, GetOptions{ForceLookup: true, Fresh: true}).Release(0)
	if s, a := g.Stats(), g.Endpoints(); s.Dials+s.Reuses != 51 || s.Idle != 1 || a.Each != nil || a.Used != 1 || a.Draining != 0 {
		t.Errorf("%+v, %+v", s, a)
	}
}

func TestOneAddressAllocatesNothing(t *testing.T) {
	s := tcpServer(t)
	port := s.addr.(*net.TCPAddr).Port
	listen(t, "tcp", fmt.Sprintf("127.0.0.2:%d", port))
	for name, target := range map[string]Target{
		"fixed": s.target(), "named": resolving(port, "127.0.0.1"), "two": resolving(port, "127.0.0.1", "127.0.0.2"),
	} {
		g := NewGroup(target, Options{})
		t.Cleanup(g.Close)
		for range 20 {
			get(t, g, GetOptions{}).Release(0)
		}
		if n := testing.AllocsPerRun(100, func() {
			c := g.TryPooled(&GetOptions{Unchecked: true})
			c.Endpoint.ReportSuccess()
			c.Release(5 * time.Second)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkGroup(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for name, target := range map[string]Target{
		"fixed": {Network: "tcp", Address: l.Addr().String()}, "named": resolving(port, "127.0.0.1"),
	} {
		b.Run(name, func(b *testing.B) {
			g := NewGroup(target, Options{})
			defer g.Close()
			var conns []*Conn
			for range 8 {
				c, err := g.Get(b.Context(), GetOptions{Fresh: true})
				if err != nil {
					b.Fatal(err)
				}
				conns = append(conns, c)
			}
			for _, c := range conns {
				c.Release(0)
			}
			b.ReportAllocs()
			for b.Loop() {
				c := g.TryPooled(&GetOptions{Unchecked: true})
				c.Endpoint.ReportSuccess()
				c.Release(5 * time.Second)
			}
		})
	}
}

func TestStatsOfRemovedEndpointsAreKept(t *testing.T) {
	w := newFakeNetwork(t, time.Hour, addresses(40)...)
	g := w.group(Options{})
	others := func() EndpointStats { each := g.Endpoints().Each; return each[len(each)-1] }
	var held []*Conn
	for range 400 {
		held = append(held, get(t, g, GetOptions{}))
	}
	for _, c := range held {
		if c.Endpoint.ReportFailure(); !c.Endpoint.labelled {
			c.Endpoint.ReportSuccess() // so that it is not ejected
		}
		c.Release(0)
	}
	before := others()
	w.name(time.Hour, addresses(33)...)
	get(t, g, GetOptions{ForceLookup: true, Avoid: addresses(33)[32]}).Release(0)
	if after := others(); g.Endpoints().Draining != 0 || after != before || after.Attempts == 0 || after.Failures == 0 {
		t.Errorf("%+v became %+v", before, after)
	}
}

// A endpoint that is gone may still be chosen by one who looked before.
func TestRemovedEndpointsHaveNothingInFlight(t *testing.T) {
	w := newFakeNetwork(t, time.Hour, addresses(2)...)
	g := w.group(Options{})
	get(t, g, GetOptions{}).Release(0)
	m := g.endpoint(t, addresses(2)[0])
	m.pool.dialing.Add(1)
	g.mu.Lock()
	g.retire(m)
	g.mu.Unlock()
	m.pool.dialing.Add(-1)
	if s := g.Stats(); s.Dialing != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTheAvoidedAddressIsDialledAfterTheEjectedOnes(t *testing.T) {
	_, g, m := three(t, Options{})
	failTimes(m[1], DefaultEjectAfter)
	g.random = func(uint32) uint32 { return 0 }
	if order := g.picker.Load().dialOrder(nil, m[0].addr, g.random); !slices.Equal(order, []*Endpoint{m[2], m[1], m[0]}) {
		for _, m := range order {
			t.Log(m.addr)
		}
		t.Error("want the usable one, the ejected one and the avoided one")
	}
}

func TestEndpointsAreBounded(t *testing.T) {
	w := newFakeNetwork(t, time.Hour)
	for i := range 2 * maxEndpoints {
		w.resolution.addrs = append(w.resolution.addrs, resolvedAddr{fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), 0, 1})
	}
	g := w.group(Options{})
	for range 2 {
		get(t, g, GetOptions{ForceLookup: true}).Release(0)
		if n := len(endpointAddrs(g)); n != maxEndpoints {
			t.Errorf("%d members", n)
		}
	}
}

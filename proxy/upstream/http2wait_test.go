package upstream

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// narrowUpstream serves HTTP/2 with one stream on each connection, and counts the connections that it has at once.
func narrowUpstream(t *testing.T, h http.HandlerFunc) (target Target, most *atomic.Int64) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1}
	most = new(atomic.Int64)
	countOpen(s, new(atomic.Int64), most)
	s.Start()
	t.Cleanup(s.Close)
	return Target{Network: "tcp", Address: s.Listener.Addr().String(), Protocol: HTTP2}, most
}

// countOpen counts the open connections of a server that has not started, and notes the most that there were.
func countOpen(s *httptest.Server, open, most *atomic.Int64) {
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed:
			open.Add(-1)
		}
	}
}

// askFor sends a GET and reads its response.
func askFor(ctx context.Context, p *Pool, o GetOptions, path string) error {
	c, err := p.Get(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := beginText(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return err
	}
	_, err = readText(c)
	return err
}

// Beyond the connections that an endpoint may have, requests wait for a stream, however short the time for a dial
// is, and whether they ask for a fresh connection or not.
func TestRequestsWaitForAStreamWhenAllConnectionsAreFull(t *testing.T) {
	const conns, requests = 2, 12
	release := make(chan struct{})
	target, most := narrowUpstream(t, func(http.ResponseWriter, *http.Request) { <-release })
	p := makePool(t, target, Options{})
	p.http2.mostConns = conns
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if err := askFor(t.Context(), p, GetOptions{DialTimeout: time.Second, Fresh: true}, "/"); err != nil {
				t.Error(err)
			}
		})
	}
	for p.http2.queued.Load() != requests-conns {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(1200 * time.Millisecond) // longer than a dial may take, and than a connection is fresh
	close(release)
	all.Wait()
	if n := most.Load(); n > conns {
		t.Errorf("%d connections at once, want %d", n, conns)
	}
	if n := p.http2.queued.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// A stream goes to the request that has waited longest. One that comes later, and finds it free, waits behind.
func TestStreamsAreGivenInTheOrderOfArrival(t *testing.T) {
	next := make(chan struct{})
	order := make(chan string, 10)
	target, _ := narrowUpstream(t, func(_ http.ResponseWriter, r *http.Request) { order <- r.URL.Path; <-next })
	p := makePool(t, target, Options{})
	p.http2.mostConns = 1
	var all sync.WaitGroup
	paths := []string{"/a", "/b", "/c", "/d"}
	for i, path := range paths {
		all.Go(func() {
			if err := askFor(t.Context(), p, GetOptions{}, path); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			if got := <-order; got != path {
				t.Error(got)
			}
		}
		for p.http2.queued.Load() != int64(i) {
			time.Sleep(time.Millisecond)
		}
	}
	for _, path := range paths[1:] {
		next <- struct{}{}
		if got := <-order; got != path {
			t.Errorf("%s came instead of %s", got, path)
		}
	}
	close(next)
	all.Wait()
	w := p.http2.enqueue(time.Time{})
	if c := p.TryPooled(&GetOptions{}); c != nil {
		t.Error("one that came later got a stream")
	}
	p.http2.leave(w)
	if c := p.TryPooled(&GetOptions{}); c == nil {
		t.Error("nobody waits, and none got it")
	}
}

// A wait that ends with its request's time says nothing about the upstream, and the next one gets the stream.
func TestAWaitForAStreamEndsWithItsRequest(t *testing.T) {
	release := make(chan struct{})
	came := make(chan struct{}, 10)
	target, _ := narrowUpstream(t, func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-release })
	p := makePool(t, target, Options{})
	p.http2.mostConns = 1
	var all sync.WaitGroup
	ask := func() {
		if err := askFor(t.Context(), p, GetOptions{}, "/"); err != nil {
			t.Error(err)
		}
	}
	all.Go(ask)
	<-came
	for want, end := range map[DialKind]func() (context.Context, context.CancelFunc){
		KindNoStream: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 20*time.Millisecond)
		},
		KindCanceled: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := end()
		var dial *DialError
		if err := askFor(ctx, p, GetOptions{}, "/"); !errors.As(err, &dial) || dial.Kind != want {
			t.Errorf("%v, want %v", err, want)
		}
		cancel()
	}
	if n := p.Stats().DialErrors[KindNoStream]; n != 1 {
		t.Errorf("%d were counted", n)
	}
	all.Go(ask)
	for p.http2.queued.Load() != 1 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	all.Wait()
}

// An endpoint that has no stream free is left for one that has, without an error and without evidence against it;
// if none has, the request waits beyond the time for a dial.
func TestAFullEndpointIsLeftForAnother(t *testing.T) {
	release := make(chan struct{})
	came := make(chan struct{}, 10)
	var most [2]*atomic.Int64
	real := map[string]string{} // by the endpoint's address
	for i, addr := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
		var target Target
		target, most[i] = narrowUpstream(t, func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-release })
		real[addr] = target.Address
	}
	w := newFakeNetwork(t, time.Hour, slices.Collect(maps.Keys(real))...)
	target := Target{Network: "tcp", Address: "app.test:80", Protocol: HTTP2, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, real[addr])
	}}
	target.Resolve = resolving(80).Resolve // not asked: find is replaced
	g := NewGroup(target, Options{})
	g.resolve = w.resolve
	t.Cleanup(g.Close)
	if err := g.ensureResolved(t.Context(), &GetOptions{}, time.Second); err != nil {
		t.Fatal(err)
	}
	for _, e := range g.picker.Load().endpoints {
		e.pool.http2.mostConns = 1
	}
	var all sync.WaitGroup
	for i := range 6 {
		o := GetOptions{DialTimeout: 200 * time.Millisecond, Endpoint: g.picker.Load().endpoints[0]}
		if i < len(most) {
			o.DialTimeout = time.Hour // half of it would be for a stream of the first one
		}
		all.Go(func() {
			c, err := g.Get(t.Context(), o)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, _ = beginText(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if _, err := readText(c); err != nil {
				t.Error(err)
			}
		})
		if i < len(most) {
			select {
			case <-came:
			case <-time.After(20 * time.Second):
				t.Fatal("it waits for an endpoint that has no stream")
			}
		}
	}
	time.Sleep(time.Second)
	close(release)
	all.Wait()
	if most[0].Load() != 1 || most[1].Load() != 1 {
		t.Errorf("%d and %d connections at once", most[0].Load(), most[1].Load())
	}
}

// A request that dials in place of a connection that has ended, in vain for long, does not keep the streams that
// become free meanwhile from those that wait behind it.
func TestADialThatHangsDoesNotHoldUpWhoWaitsForAStream(t *testing.T) {
	release := make(chan struct{})
	came := make(chan string, 10)
	target, _ := narrowUpstream(t, func(_ http.ResponseWriter, r *http.Request) { came <- r.URL.Path; <-release })
	hang, end := context.WithCancel(t.Context())
	var mu sync.Mutex
	var conns []net.Conn
	dials := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(conns)
	}
	target.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var c net.Conn
		var err error
		hangs := dials() == 2
		if !hangs {
			c, err = new(net.Dialer).DialContext(ctx, network, addr)
		}
		mu.Lock()
		conns = append(conns, c)
		mu.Unlock()
		if hangs {
			<-hang.Done()
			return nil, hang.Err()
		}
		return c, err
	}
	p := makePool(t, target, Options{})
	p.http2.mostConns = 2
	var all sync.WaitGroup
	ask := func(path string, mayFail bool) {
		all.Go(func() {
			if err := askFor(t.Context(), p, GetOptions{DialTimeout: time.Minute}, path); err != nil && !mayFail {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	ask("/a", false)
	<-came
	ask("/b", true)
	<-came
	for i, path := range []string{"/dials", "/waits", "/waits"} {
		ask(path, path == "/dials")
		for p.http2.queued.Load() != int64(i+1) {
			time.Sleep(time.Millisecond)
		}
	}
	mu.Lock()
	_ = conns[1].Close()
	mu.Unlock()
	for dials() != 3 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	for range 2 {
		select {
		case path := <-came:
			if path != "/waits" {
				t.Error(path)
			}
		case <-time.After(5 * time.Second):
			t.Error("a stream is free, and a request waits for it behind one that dials")
		}
	}
	end()
	all.Wait()
	if n := p.http2.queued.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// A request waits for a stream of an endpoint that works, rather than fail at one that does not, whether that was
// ejected already or not. One that was is not dialed: that could take as long as a dial may take.
func TestARequestWaitsForAStreamRatherThanFailAtAnEndpointThatIsDown(t *testing.T) {
	for _, ejected := range []bool{false, true} {
		release := make(chan struct{})
		came := make(chan struct{}, 10)
		real, _ := narrowUpstream(t, func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-release })
		const works, down = "10.0.0.1:80", "10.0.0.2:80"
		var tried atomic.Int64
		w := newFakeNetwork(t, time.Hour, works, down)
		target := Target{Network: "tcp", Address: "app.test:80", Protocol: HTTP2, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == down {
				tried.Add(1)
				return nil, errno("connect", syscall.ECONNREFUSED)
			}
			return new(net.Dialer).DialContext(ctx, network, real.Address)
		}}
		target.Resolve = resolving(80).Resolve // not asked: find is replaced
		g := NewGroup(target, Options{Eject: Eject{After: -1}})
		if ejected {
			g = NewGroup(target, Options{Eject: Eject{After: 1, For: time.Hour}})
		}
		g.resolve = w.resolve
		t.Cleanup(g.Close)
		if err := g.ensureResolved(t.Context(), &GetOptions{}, time.Second); err != nil {
			t.Fatal(err)
		}
		at := g.endpoint(t, works)
		at.pool.http2.mostConns = 1
		if ejected {
			g.endpoint(t, down).ReportLost()
		}
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				c, err := g.Get(t.Context(), GetOptions{Endpoint: at})
				if err != nil {
					t.Errorf("ejected %v: %v", ejected, err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = beginText(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				if _, err := readText(c); err != nil {
					t.Error(err)
				}
			})
			if i == 0 {
				<-came
			}
		}
		for until := time.Now().Add(5 * time.Second); at.pool.http2.queued.Load() != 2 && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
		close(release)
		all.Wait()
		if n := tried.Load(); ejected && n > 0 {
			t.Errorf("the ejected endpoint was dialed %d times", n)
		}
	}
}

// A request that looks at all endpoints again, because the time for a dial is over, keeps its place among those that
// wait for a stream, and is counted once, if its own time ends.
func TestARequestKeepsItsPlaceWhileItLooksForAStreamElsewhere(t *testing.T) {
	release := make(chan struct{})
	came := make(chan struct{}, 10)
	real, _ := narrowUpstream(t, func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-release })
	w := newFakeNetwork(t, time.Hour, "10.0.0.1:80")
	target := Target{Network: "tcp", Address: "app.test:80", Protocol: HTTP2, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, real.Address)
	}}
	target.Resolve = resolving(80).Resolve // not asked: find is replaced
	g := NewGroup(target, Options{})
	g.resolve = w.resolve
	t.Cleanup(g.Close)
	if err := g.ensureResolved(t.Context(), &GetOptions{}, time.Second); err != nil {
		t.Fatal(err)
	}
	p := g.endpoint(t, "10.0.0.1:80").pool
	p.http2.mostConns = 1
	var all sync.WaitGroup
	all.Go(func() {
		if err := askFor(t.Context(), p, GetOptions{}, "/"); err != nil {
			t.Error(err)
		}
	})
	<-came
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	all.Go(func() {
		defer cancel()
		if _, err := g.Get(ctx, GetOptions{DialTimeout: 10 * time.Millisecond}); err == nil {
			t.Error("it got a stream that is not free")
		}
	})
	waits := func(not *streamWait) *streamWait {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			p.http2.mu.Lock()
			queue := slices.Clone(p.http2.queue)
			p.http2.mu.Unlock()
			if len(queue) > 0 && queue[0] != not {
				return queue[0]
			}
		}
		t.Fatal("it does not wait")
		return nil
	}
	first := waits(nil)
	again := waits(first)
	if !again.since.Equal(first.since) {
		t.Error("it waits anew")
	}
	if n := p.Stats().DialErrors[KindNoStream]; n != 0 {
		t.Errorf("%d were counted while it waits", n)
	}
	cancel()
	<-ctx.Done()
	late, early := p.http2.enqueue(again.since.Add(time.Hour)), p.http2.enqueue(again.since.Add(time.Minute))
	if i, j := slices.Index(p.http2.queue, early), slices.Index(p.http2.queue, late); i > j {
		t.Errorf("who has waited longer is %d in the queue, behind %d", i, j)
	}
	p.http2.leave(late)
	p.http2.leave(early)
	close(release)
	all.Wait()
}

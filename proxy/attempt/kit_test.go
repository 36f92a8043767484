package attempt

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// testTimeout bounds what must happen soon.
const testTimeout = 10 * time.Second

// testClock is the clock of requests and of the pools of their upstreams.
var testClock = clock.New()

// serve runs an upstream that lets handle respond on each connection.
func serve(t *testing.T, handle func(net.Conn)) *upstream.Group {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target, err := upstream.ParseTarget("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g := upstream.NewGroup(target, upstream.Options{Start: testClock.Epoch()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				handle(c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		g.Close()
	})
	return g
}

// says responds to one request without a body, and ends the connection.
func says(response string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := readHeaders(c); err == nil {
			_, _ = io.WriteString(c, response)
		}
	}
}

// saysEach responds to every request without a body.
func saysEach(response string) func(net.Conn) {
	return func(c net.Conn) {
		for {
			if _, err := readHeaders(c); err != nil {
				return
			}
			_, _ = io.WriteString(c, response)
		}
	}
}

// stalls reads a request and then waits for the end of the connection.
func stalls(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// readHeaders reads to the end of request headers.
func readHeaders(c net.Conn) (string, error) {
	var got []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(got), "\r\n\r\n"); {
		if _, err := c.Read(b); err != nil {
			return string(got), err
		}
		got = append(got, b...)
	}
	return string(got), nil
}

// request is a request of a test with its client: the Client, the Source and the Owner of attempts.
type request struct {
	t         *testing.T
	clock     *clock.Clock
	pool      *upstream.Group
	env       Env
	respond   clock.Instant             // by then the response must be there; zero: never
	onHedge   func()                    // called when the hedge is due
	inform    func()                    // called with each informational response
	dial      func(ctx context.Context) // called before a dial
	dialsOn   bool                      // a dial goes on after its context has ended
	hungUp    bool                      // the client has left
	connected []string                  // addresses of the attempts' connections
	told      []int                     // statuses of informational responses
	failed    atomic.Pointer[error]
	method    string
	source    Source   // of the body; by default r
	conn      net.Conn // the client's side of client; what it sends is the body
	client    net.Conn
	framing   http1.Framing
	begun     []byte // of the body, which is here
	left      int64  // of the body, to come from conn
	kept      [][]byte
	cursor    int
	stopped   atomic.Bool
	pieces    atomic.Uint32
	arrived   bool
	trails    []http1.Header // of the body
}

// newRequest is a request without a body to pool.
func newRequest(t *testing.T, pool *upstream.Group) *request {
	r := &request{t: t, clock: testClock, pool: pool, method: "GET"}
	r.source = r
	r.conn, r.client = net.Pipe()
	r.env = Env{
		Host:    &Host{Clock: r.clock, UnderPressure: func() bool { return false }, OnFault: func(fault any) { t.Errorf("fault: %v", fault) }},
		Buffers: new(buffer.Cache), Client: r, Owner: r,
	}
	r.framing = http1.Framing{Kind: http1.BodyNone}
	t.Cleanup(func() {
		_, _ = r.conn.Close(), r.client.Close()
		r.env.Buffers.Release()
	})
	return r
}

// inMemory calls test with a request to an upstream that handles each of its connections, which are in memory, in
// fake time.
func inMemory(t *testing.T, handle func(net.Conn), test func(r *request)) {
	t.Helper()
	inMemoryTo(t, "http://a.example", upstream.Options{}, handle, test)
}

// inMemoryTo is inMemory with an upstream of that address.
func inMemoryTo(t *testing.T, address string, o upstream.Options, handle func(net.Conn), test func(r *request)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		target, err := upstream.ParseTarget(address)
		if err != nil {
			t.Fatal(err)
		}
		target.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		}
		var handlers sync.WaitGroup
		t.Cleanup(handlers.Wait)
		target.Dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			handlers.Go(func() {
				defer theirs.Close()
				handle(theirs)
			})
			return ours, nil
		}
		r := newRequest(t, nil)
		r.clock = clock.New()
		r.env.Host.Clock = r.clock
		o.Start = r.clock.Epoch()
		r.pool = upstream.NewGroup(target, o)
		t.Cleanup(r.pool.Close)
		test(r)
	})
}

// withBody makes the body n bytes long, of which begun are here.
func (r *request) withBody(n int64, begun string) *request {
	r.method, r.framing = "PUT", http1.Framing{Kind: http1.BodyLength, Length: n}
	r.begun, r.left = []byte(begun), n-int64(len(begun))
	return r
}

// send makes an attempt.
func (r *request) send(o Options) (*Attempt, policy.Cause) {
	r.t.Helper()
	a := r.env.New()
	o.BodyIdle = testTimeout
	a.Begin(1, r.clock.Now(), nil, o)
	r.t.Cleanup(a.Abandon)
	return a, a.Make(false)
}

// wants makes an attempt that must get response headers.
func (r *request) wants(o Options) *Attempt {
	r.t.Helper()
	a, cause := r.send(o)
	if cause != policy.CauseStatus {
		r.t.Fatalf("the attempt ended with %v", cause)
	}
	return a
}

// body reads the body of a response to its end.
func (r *request) body(a *Attempt) string {
	r.t.Helper()
	var got bytes.Buffer
	for {
		piece, err := a.Body().Next(testTimeout)
		got.Write(piece)
		if err == io.EOF {
			return got.String()
		}
		if err != nil {
			r.t.Fatalf("the body ended with %v after %q", err, got.String())
		}
	}
}

func (r *request) Target(*Attempt) Target { return Target{Pool: r.pool} }
func (r *request) Dial(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error) {
	if r.dial != nil {
		r.dial(ctx)
	}
	if r.dialsOn {
		ctx = context.WithoutCancel(ctx)
	}
	return r.pool.Get(ctx, o)
}
func (r *request) AwaitDescriptor(*Attempt, time.Duration, clock.Instant) bool { return false }
func (r *request) Connected(a *Attempt, up *upstream.Conn) {
	r.connected = append(r.connected, up.Addr)
	if a.SentSome() || a.Addr() != up.Addr {
		r.t.Errorf("connected to %s after something was sent, or as %s", up.Addr, a.Addr())
	}
}
func (r *request) RequestHeaders(_ *Attempt, form wire.Form, host string, expect bool) wire.Head {
	return r.head(form, host)
}
func (r *request) head(form wire.Form, host string) wire.Head {
	if form != wire.Lines {
		fields := wire.AppendFraming(form, nil, r.framing)
		for _, h := range r.trails {
			fields = wire.AppendHeader(form, fields, "trailer", string(h.Name))
		}
		return wire.Head{Form: form, Fields: fields, Method: []byte(r.method), Target: []byte("/"), Authority: []byte(host)}
	}
	return wire.Head{Fields: []byte(r.method + " / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")}
}
func (r *request) RespondBy(clock.Instant) clock.Instant { return r.respond }
func (r *request) SentWhole(*Attempt)                    {}
func (r *request) Inform(res *http1.Response) {
	if r.told = append(r.told, res.Status); r.inform != nil {
		r.inform()
	}
}
func (r *request) HedgeDue() {
	if r.onHedge != nil {
		r.onHedge()
	}
}

func (r *request) Method() []byte          { return []byte(r.method) }
func (r *request) Source() Source          { return r.source }
func (r *request) LeavesAt() clock.Instant { return 0 }
func (r *request) Tick() clock.Instant     { return r.clock.Now() }
func (r *request) LastTick() clock.Instant { return r.clock.Now() }
func (r *request) ClientStaysOn() bool     { return r.failed.Load() == nil }
func (r *request) ClientFailed(err error)  { r.failed.Store(&err) }
func (r *request) ClientHungUp() bool      { return r.hungUp }
func (r *request) LendClient() {
	r.stopped.Store(false)
	_ = r.client.SetReadDeadline(time.Time{})
}
func (r *request) InterruptClient() {
	r.stopped.Store(true)
	_ = r.client.SetReadDeadline(past)
}
func (r *request) ReturnClient() {
	r.stopped.Store(false)
	_ = r.client.SetReadDeadline(time.Time{})
}
func (r *request) WatchClient() bool {
	for {
		b := make([]byte, 1)
		n, err := r.client.Read(b)
		if r.left > 0 { // of the body, for whoever reads it next
			r.begun, r.left = append(r.begun, b[:n]...), r.left-int64(n)
		}
		if err != nil {
			return !r.stopped.Load()
		}
	}
}

func (r *request) Framing() http1.Framing    { return r.framing }
func (r *request) IsInMemory(max int64) bool { return r.left == 0 }
func (r *request) Rewind()                   { r.cursor = 0 }
func (r *request) Ready() bool               { return r.AtEnd() || r.cursor < len(r.kept) || len(r.begun) > 0 }
func (r *request) AtEnd() bool               { return len(r.begun) == 0 && r.left == 0 && r.cursor >= len(r.kept) }
func (r *request) Keeps() bool               { return true }
func (r *request) Kept() [][]byte            { return r.kept }
func (r *request) Trailers() []http1.Header  { return r.trails }
func (r *request) Pieces() uint32            { return r.pieces.Load() }
func (r *request) Arrived()                  { r.arrived = true }
func (r *request) CanSplice() bool           { return false }
func (r *request) NextNow() ([]byte, error) {
	if !r.Ready() || r.AtEnd() {
		return nil, nil
	}
	return r.Next(0)
}
func (r *request) SpliceTo(*net.TCPConn, clock.Instant) (bool, error) { panic("CanSplice is false") }
func (r *request) Next(wait time.Duration) ([]byte, error) {
	r.pieces.Add(1)
	switch {
	case r.cursor < len(r.kept):
		r.cursor++
		return r.kept[r.cursor-1], nil
	case len(r.begun) > 0:
		r.kept, r.begun = append(r.kept, r.begun), nil
		r.cursor = len(r.kept)
		return r.kept[r.cursor-1], nil
	case r.left == 0:
		return nil, io.EOF
	}
	if wait > 0 {
		_ = r.client.SetReadDeadline(time.Now().Add(wait))
	} else if !r.stopped.Load() {
		_ = r.client.SetReadDeadline(time.Time{})
	}
	piece := make([]byte, min(r.left, 1<<10))
	n, err := r.client.Read(piece)
	switch {
	case n > 0:
		r.left -= int64(n)
		r.kept = append(r.kept, piece[:n])
		r.cursor = len(r.kept)
		return piece[:n], nil
	case rawsocket.IsTimeout(err) && r.stopped.Load():
		return nil, ErrStopped
	case rawsocket.IsTimeout(err):
		return nil, err
	}
	return nil, ErrClientGone
}

package exchange

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is the connection of a client whose requests an Exchange serves. Its upstreams follow a script. All
// connections are in memory, and time is that of a bubble of testing/synctest.
type served struct {
	*testing.T
	x        *Exchange
	conn     *downstream.Conn
	client   *requesttest.Wire // what the client got
	far      net.Conn          // the client's end
	process  *request.Process
	settings *settings.Settings
	began    time.Time // the request
	gRPC     bool      // requests are gRPC calls, as if they came by HTTP/2
	more     []any     // what the client does after a request: it sends a string, waits for a duration, calls a function, or closes

	clients sync.WaitGroup // what the client does
	dials   atomic.Int32   // connections that were dialled to upstreams

	mu    sync.Mutex    // guards all below
	story []string      // what happened, in order
	aside []string      // what upstreams saw besides, in order
	added time.Duration // by retries, to the last request
}

// inMemory calls test with a connection whose upstream follows the script in steps. change may alter the
// configuration.
func inMemory(t *testing.T, steps []step, change func(s *served, c *settings.Config), test func(s *served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &served{T: t, began: time.Now()}
		config := requesttest.Config(t)
		config.Default.Upstream = s.upstream("", steps...)
		config.Default.ResponseBufferBytes = 64 << 10
		config.Default.ResponseChanges = forward.NewHeaderChanges(nil, []string{"X-Request-Id", "Date"})
		config.TunnelIdleTimeout = time.Minute
		config.Observe = func(string) func() settings.Observer {
			return func() settings.Observer { return observer{s: s} }
		}
		if change != nil {
			change(s, config)
		}
		never := func() bool { return false }
		s.process = request.NewProcess(config.RetryBufferTotalBytes, request.Hooks{
			OnFault: func(fault any) { t.Errorf("fault: %v", fault) }, OnWait: func() {}, CloseIdleUpstream: never, UnderPressure: never,
		})
		s.settings = requesttest.Prepare(t, config, s.process, nil)
		s.connect()
		test(s)
		s.disconnect()
		if n := s.process.RetryBuffer.InUse(); n != 0 {
			t.Errorf("%d bytes of retry buffer were not given back", n)
		}
		for _, r := range s.settings.All {
			if g := r.Terms.Queue.Guard.State(); g.InFlight != g.Abandoned || g.Queued != 0 {
				t.Errorf("%d permits are taken, %d of them abandoned", g.InFlight, g.Abandoned)
			}
		}
	})
}

// connect gives the client a connection. Its requests are served by s.x.
func (s *served) connect() {
	near, far := net.Pipe()
	s.client, s.far, s.conn, s.x = &requesttest.Wire{Conn: near}, far, new(downstream.Conn), new(Exchange)
	s.conn.Init(s.client, s.process.Clock, "", 0, s.x)
	s.conn.Identify(forward.Peer{Addr: netip.MustParseAddr("127.0.0.1"), Text: "127.0.0.1"})
	s.x.Init(s.conn, s.process)
}

// disconnect ends the connection of the client. Its upstreams have noticed then.
func (s *served) disconnect() {
	_, _ = s.client.Close(), s.far.Close()
	s.clients.Wait()
	synctest.Wait()
	s.conn.Buffers.Release()
	s.conn.PutIn()
}

// note adds to the story.
func (s *served) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, fmt.Sprintf(format, args...))
}

// noteAside is note for what happens beside the request.
func (s *served) noteAside(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = append(s.aside, fmt.Sprintf(format, args...))
}

// elapsed returns how long the request has been served.
func (s *served) elapsed() time.Duration { return time.Since(s.began) }

// serve serves the request that the client sends as text.
func (s *served) serve(text string) {
	s.Helper()
	s.began = time.Now()
	sent, more := make(chan struct{}), s.more
	s.clients.Go(func() {
		defer close(sent)
		_, _ = io.WriteString(s.far, text)
		for _, part := range more {
			switch part := part.(type) {
			case string:
				_, _ = io.WriteString(s.far, part)
			case time.Duration:
				time.Sleep(part)
			case func():
				part()
			case action:
				_ = s.far.Close()
			}
		}
	})
	s.conn.Request().Reset()
	s.conn.ClearRead() // of what watched the client during the request before
	s.conn.Begin(buffer.Medium)
	for whole := false; !whole; {
		err := s.conn.Fill()
		if err == nil {
			whole, err = s.conn.ParseRequest(s.settings.Limits)
		}
		if err != nil {
			s.Fatalf("%q: %v", text, err)
		}
	}
	s.x.Begin(s.settings, s.process.Clock.Now())
	s.x.r.GRPC = s.gRPC
	switch keeps := s.x.Serve(); {
	case s.x.MustReset():
		s.note("reset")
	case !keeps:
		s.note("closed")
	default:
		<-sent
	}
	s.conn.EndRequest()
}

// wants checks what happened and what the client got since the last call.
func (s *served) wants(story, response string) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	got := strings.Join(append(s.story, s.aside...), ", ")
	s.story, s.aside = nil, nil
	s.mu.Unlock()
	if got != story {
		s.Errorf("story\n%s\nwant\n%s", got, story)
	}
	if got := s.client.String(); got != response {
		s.Errorf("the client got\n%q\nwant\n%q", got, response)
	}
}

// get is a GET with more headers, each a line.
func get(lines ...string) string { return message("GET", lines...) + "\r\n" }

// with is a request with that body and more headers, each a line.
func with(method, body string, lines ...string) string {
	return message(method, append(lines, fmt.Sprintf("Content-Length: %d", len(body)))...) + "\r\n" + body
}

func message(method string, lines ...string) string {
	return strings.Join(append([]string{method + " /a HTTP/1.1", "Host: a", "X-Request-Id: id"}, append(lines, "")...), "\r\n")
}

// answer is a response with that body and more headers, each a line.
func answer(status int, body string, lines ...string) string {
	return strings.Join(append([]string{fmt.Sprintf("HTTP/1.1 %d X", status)}, append(lines, fmt.Sprintf("Content-Length: %d", len(body)), "", body)...), "\r\n")
}

// step is what an upstream does with a request: it says each string, waits for each duration and calls each
// function. It then keeps the connection, unless the last is closes. A step of refuses alone is a dial that fails.
type step []any

// early is what an upstream says as the first of a step before it reads the body.
type early string

type action int

const (
	closes action = iota
	refuses
	breaks // alone: the connection is closed before the body is read
	hangs  // alone: a dial does not end
	fails  // alone: a dial finds no descriptor
)

// script is an upstream that takes one step for each request, on whatever connection.
type script struct {
	s     *served
	name  string
	mu    sync.Mutex
	steps []step
}

// upstream returns an upstream that follows the steps. name stands in the story before its requests.
func (s *served) upstream(name string, steps ...step) upstream.Target {
	u := &script{s: s, name: name, steps: steps}
	target, err := upstream.ParseTarget("http://" + strings.ReplaceAll(name, " ", "") + "upstream.example")
	if err != nil {
		s.Fatal(err)
	}
	target.Dial = u.dial
	target.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	}
	return target
}

// early returns what the upstream says before it reads the body. breaksOff means that it does not read it.
func (u *script) early() (text early, breaksOff bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.steps) == 0 {
		return "", false
	}
	text, _ = u.steps[0][0].(early)
	if breaksOff = u.steps[0][0] == breaks; breaksOff {
		u.steps = u.steps[1:]
	}
	return text, breaksOff
}

// next returns the next step, if it is one of a dial as asked for.
func (u *script) next(dial bool) step {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.steps) == 0 {
		if !dial {
			u.s.Errorf("%sthe script has ended", u.name)
		}
		return nil
	}
	now := u.steps[0]
	if dial && now[0] != refuses && now[0] != hangs && now[0] != fails {
		return nil
	}
	u.steps = u.steps[1:]
	return now
}

func (u *script) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if now := u.next(true); now != nil {
		switch now[0] {
		case hangs:
			<-ctx.Done()
			return nil, ctx.Err()
		case fails:
			u.s.note("%v %shas no descriptor", u.s.elapsed(), u.name)
			return nil, syscall.EMFILE
		}
		u.s.note("%v %srefused", u.s.elapsed(), u.name)
		return nil, errors.New("refused")
	}
	u.s.dials.Add(1)
	ours, theirs := net.Pipe()
	go u.serve(theirs)
	return ours, nil
}

func (u *script) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		begun, breaksOff := u.early()
		if begun != "" || breaksOff {
			u.s.note("%v %s%s %s", u.s.elapsed(), u.name, r.Method, r.URL)
		}
		if breaksOff {
			return
		}
		said := make(chan struct{})
		go func() { // beside reading, as a pipe has no buffer
			defer close(said)
			if begun != "" {
				_, _ = io.WriteString(c, string(begun))
			}
		}()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			u.s.noteAside("%v %s%s %s cut after %d", u.s.elapsed(), u.name, r.Method, r.URL, len(body))
			return
		}
		<-said
		text := ""
		if len(body) > 0 {
			text = " " + string(body)
		}
		u.s.note("%v %s%s %s%s", u.s.elapsed(), u.name, r.Method, r.URL, text)
		if !perform(c, in, u.next(false)) {
			return
		}
	}
}

// perform does a step. It reports whether the connection stays.
func perform(c net.Conn, in *bufio.Reader, now step) bool {
	for _, part := range now {
		switch part := part.(type) {
		case string:
			if _, err := io.WriteString(c, part); err != nil {
				return false
			}
		case time.Duration:
			_ = c.SetReadDeadline(time.Now().Add(part))
			_, err := in.Peek(1)
			if e := net.Error(nil); !errors.As(err, &e) || !e.Timeout() {
				return false
			}
			_ = c.SetReadDeadline(time.Time{})
		case func(net.Conn, io.Reader):
			part(c, in)
		case action:
			return false
		}
	}
	return now != nil
}

// observer notes its calls.
type observer struct {
	settings.NoObserver
	s *served
}

func (o observer) AttemptDone(class policy.Class, code int, d time.Duration) {
	o.s.note("%v %d after %v", class, code, d)
}
func (o observer) Retry(reason policy.Reason)               { o.s.note("retry %v", reason) }
func (o observer) WouldRetry(reason policy.Reason)          { o.s.note("would retry %v", reason) }
func (o observer) Queued(waited time.Duration)              { o.s.note("queued %v", waited) }
func (o observer) WaitEnded(waited time.Duration)           { o.s.note("waited %v", waited) }
func (o observer) Hedged()                                  { o.s.note("hedged") }
func (o observer) HedgeWon()                                { o.s.note("hedge won") }
func (o observer) FallbackFailed()                          { o.s.note("fallback failed") }
func (o observer) TokensUsed(c tokens.Count, f tokens.Fate) { o.s.note("tokens %v %v", c, f) }
func (o observer) RequestDone(_ []byte, code int, outcome policy.Outcome, d, added time.Duration, attempts int) {
	o.s.added = added
	o.s.note("%v done %d %v %d", d, code, outcome, attempts)
}

// guard returns the state of the upstream's breaker and concurrency limit.
func (s *served) guard() breaker.GuardState { return s.settings.DefaultRoute.Terms.Queue.Guard.State() }

package admission

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// A connection that is refused is dialled again within the attempt, as another server may take it, unless that
// would only add to the load of one that is down.
func TestWhenAConnectionIsDialledAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		fails     []error // of the first dials
		takes     time.Duration
		names     int // addresses of the upstream; 0: one that is not looked up
		noBreaker bool
		open      bool // the breaker is, as the first dial fails
		dials     int32
		connected bool
	}{
		"accepted":               {nil, 0, 0, false, false, 1, true},
		"refused once":           {[]error{syscall.ECONNREFUSED}, 0, 0, false, false, 2, true},
		"refused six times":      {slices.Repeat([]error{syscall.ECONNREFUSED}, 6), 0, 0, false, false, 7, true},
		"refused always":         {slices.Repeat([]error{syscall.ECONNREFUSED}, 20), 0, 0, false, false, 7, false},
		"no route":               {[]error{syscall.EHOSTUNREACH}, 0, 0, false, false, 2, true},
		"reset":                  {[]error{syscall.ECONNRESET}, 0, 0, false, false, 1, false},
		"another error":          {[]error{errors.New("other")}, 0, 0, false, false, 1, false},
		"without a breaker":      {[]error{syscall.ECONNREFUSED}, 0, 0, true, false, 1, false},
		"one name":               {[]error{syscall.ECONNREFUSED}, 0, 1, false, false, 2, true},
		"several addresses":      {[]error{syscall.ECONNREFUSED, syscall.ECONNREFUSED}, 0, 2, false, false, 2, false},
		"it takes long":          {slices.Repeat([]error{syscall.ECONNREFUSED}, 20), 150 * time.Millisecond, 0, false, false, 2, false},
		"it takes its time":      {slices.Repeat([]error{syscall.ECONNREFUSED}, 2), 100 * time.Millisecond, 0, false, false, 3, true},
		"while only probes pass": {[]error{syscall.ECONNREFUSED}, 0, 0, false, true, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var dials atomic.Int32
			var draining atomic.Bool
			c := clock.New()
			target := upstream.Target{Network: "tcp", Address: "10.0.0.1:80", Dial: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(tc.takes)
				if n := int(dials.Add(1)); n <= len(tc.fails) {
					return nil, tc.fails[n-1]
				}
				near, far := net.Pipe()
				t.Cleanup(func() { far.Close() })
				return near, nil
			}}
			if tc.names > 0 {
				target.Address = "upstream.test:80"
				target.Resolve = func(context.Context, string) ([]netip.Addr, error) {
					return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}[:tc.names], nil
				}
			}
			pool := upstream.NewGroup(target, upstream.Options{Start: c.Epoch()})
			q := New(Options{Guard: breaker.Options{NoBreaker: tc.noBreaker, After: 1}, Pool: pool, Max: 10, Clock: c, Draining: &draining, Failures: NewDialFailures(zap.NewNop(), "a")})
			if tc.open {
				permit, _ := q.AcquireNow(q.elapsed())
				q.Guard.Release(permit, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Responded, Status: 503})
			}
			up, err := q.Dial(context.Background(), upstream.GetOptions{Fresh: true})
			if n := dials.Load(); n != tc.dials || (err == nil) != tc.connected {
				t.Errorf("%s: %d dials, %v", name, n, err)
			}
			if err == nil {
				up.Abort()
			}
			q.Close()
			pool.Close()
		})
	}
}

// A client that leaves ends the dials of its attempt.
func TestNobodyIsDialledForAClientThatLeft(t *testing.T) {
	probedQueue(t, "r", Probe{}, func(q *Queue, dials *atomic.Int32) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond) // 0, 0, 5, 10, 20
		defer cancel()
		began := time.Now()
		if _, err := q.Dial(ctx, upstream.GetOptions{Fresh: true}); err == nil || dials.Load() != 5 || time.Since(began) > 25*time.Millisecond {
			t.Errorf("%d dials, %v after %v", dials.Load(), err, time.Since(began))
		}
		over, stop := context.WithCancel(context.Background())
		if stop(); sleep(over, 0) || sleep(over, time.Hour) || !sleep(context.Background(), 0) || !sleep(context.Background(), time.Millisecond) {
			t.Error("a wait that is over goes on, or one that is not over ends")
		}
	})
}

// The same failure is logged once a minute, with its cause. The hint of a certificate says what to do.
func TestAFailedConnectionIsLoggedOnceWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		f := NewDialFailures(zap.New(core), "the upstream")
		if len(f.lastCause()) != 0 {
			t.Error("a cause without a failure")
		}
		refused := &upstream.DialError{Kind: upstream.KindRefused, Addr: "10.0.0.1:80", Err: syscall.ECONNREFUSED}
		untrusted := &upstream.DialError{Kind: upstream.KindTLS, Addr: "10.0.0.1:443", Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}, Untrusted: true}
		for range 3 {
			f.Record(refused)
		}
		f.Record(untrusted)
		if f.Last.Load().Err != untrusted || !f.Last.Load().At.Equal(time.Now()) {
			t.Errorf("the last one is %+v", f.Last.Load())
		}
		cause := zap.New(core)
		cause.Warn("cause", f.lastCause()...)
		all := lines.TakeAll()
		if len(all) != 3 {
			t.Fatalf("%d lines: %v", len(all), all)
		}
		one, two, three := all[0].ContextMap(), all[1].ContextMap(), all[2].ContextMap()
		if one["upstream"] != "the upstream" || one["address"] != "10.0.0.1:80" || one["kind"] != "refused" || one["error"] != "connection refused" || one["hint"] != nil {
			t.Errorf("%v", one)
		}
		if !strings.Contains(all[1].Message, "certificate") || two["upstream"] != "the upstream" || two["address"] != "10.0.0.1:443" || two["hint"] != CertificateHint(untrusted) {
			t.Errorf("%s %v", all[1].Message, two)
		}
		if three["address"] != "10.0.0.1:443" || three["kind"] != "tls" {
			t.Errorf("%v", three)
		}
		time.Sleep(2 * time.Minute)
		if f.Record(refused); len(lines.TakeAll()) == 0 {
			t.Error("it is not logged after two minutes")
		}
	})
}

func TestTheHintOfACertificateSaysWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"another name":  {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}, "RETRYPROXY_UPSTREAM_HOST"},
		"expired":       {x509.CertificateInvalidError{Reason: x509.Expired}, "renew"},
		"for no server": {x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}, "replace"},
		"an unknown CA": {x509.UnknownAuthorityError{}, "RETRYPROXY_UPSTREAM_CA "},
	} {
		if hint := CertificateHint(&upstream.DialError{Err: tc.err}); !strings.Contains(hint, tc.says) {
			t.Errorf("%s: %s", name, hint)
		}
	}
}

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func errno(op string, code syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(op, code)}
}

func TestDialErrorsAreClassifiedByTypeNotText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want DialKind
	}{
		{errno("connect", syscall.ECONNREFUSED), KindRefused},
		{errno("connect", syscall.ENOENT), KindRefused},
		{errno("connect", syscall.ECONNRESET), KindRefused},
		{errno("connect", syscall.EAGAIN), KindRefused},
		{errno("connect", syscall.ETIMEDOUT), KindTimeout},
		{os.ErrDeadlineExceeded, KindTimeout},
		{context.DeadlineExceeded, KindTimeout},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, KindDNS},
		{&net.DNSError{Err: "slow", IsTimeout: true}, KindDNS},
		{errno("connect", syscall.EHOSTUNREACH), KindUnreachable},
		{errno("connect", syscall.ENETUNREACH), KindUnreachable},
		{errno("connect", syscall.EADDRNOTAVAIL), KindUnreachable},
		{errno("socket", syscall.EMFILE), KindNoDescriptors},
		{errno("socket", syscall.ENFILE), KindNoDescriptors},
		{context.Canceled, KindCanceled},
		{fmt.Errorf("wrapped: %w", errno("connect", syscall.ECONNREFUSED)), KindRefused},
		{errno("connect", syscall.EACCES), KindOther},
		{errors.New("connection refused, i/o timeout, no such host"), KindOther},
	} {
		target := Target{Network: "tcp", Address: "10.0.0.1:80",
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, c.err }}
		p := makePool(t, target, Options{})
		d := fail(t, p, t.Context(), GetOptions{})
		if d.Kind != c.want || d.Addr != "10.0.0.1:80" || p.Stats().DialErrors[c.want] != 1 || p.Stats().Dialing != 0 {
			t.Errorf("%v: %s at %s, counted %v; want %s", c.err, d.Kind, d.Addr, p.Stats().DialErrors, c.want)
		}
	}
}

func TestDialKindLabelsAreClosedAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for k := range DialKind(NumDialKinds) {
		if s := k.String(); s == "" || seen[s] || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("kind %d has the label %q", k, s)
		}
		seen[k.String()] = true
	}
	if s := DialKind(200).String(); s != "other" {
		t.Errorf("a value outside the set reads %q", s)
	}
}

func TestRefusedOnRealSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	removed := l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	u, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	u.SetUnlinkOnClose(false)
	_ = u.Close()
	for name, target := range map[string]Target{
		"tcp":              {Network: "tcp", Address: removed},
		"unix, no file":    {Network: "unix", Address: filepath.Join(dir, "none")},
		"unix, dead file":  {Network: "unix", Address: dead},
		"unix, full queue": {Network: "unix", Address: fullUnixSocket(t)},
	} {
		d := fail(t, makePool(t, target, Options{}), t.Context(), GetOptions{})
		if d.Kind != KindRefused || d.Addr != target.Address {
			t.Errorf("%s: %s at %s: %v", name, d.Kind, d.Addr, d)
		}
	}
	d := fail(t, makePool(t, Target{Network: "unix", Address: dir}, Options{}), t.Context(), GetOptions{})
	if d.Kind != KindRefused { // a directory refuses, too
		t.Errorf("directory: %s: %v", d.Kind, d)
	}
	if !errors.Is(fail(t, makePool(t, Target{Network: "unix", Address: filepath.Join(dir, "none")}, Options{}), t.Context(), GetOptions{}), fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
}

// fullUnixSocket gives the path of a socket whose queue takes no one more.
func fullUnixSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "full")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		c, err := net.Dial("unix", path)
		if err != nil {
			return path
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue never got full")
	return ""
}

func TestFullTCPBacklogTimesOut(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	target := Target{Network: "tcp", Address: fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)}
	p := makePool(t, target, Options{})
	for range 10 {
		c, err := p.Get(t.Context(), GetOptions{DialTimeout: 200 * time.Millisecond})
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			continue
		}
		var d *DialError
		if !errors.As(err, &d) || d.Kind != KindTimeout {
			t.Fatalf("%v", err)
		}
		return
	}
	t.Fatal("the backlog never got full")
}

func TestNoDescriptorsOnRealSockets(t *testing.T) {
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	get(t, p, GetOptions{}) // the poller has its descriptors now
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	c, err := p.Get(t.Context(), GetOptions{})
	if e := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); e != nil {
		t.Fatal(e)
	}
	if err == nil {
		_ = c.Close()
		t.Fatal("Get succeeded without descriptors")
	}
	var d *DialError
	if !errors.As(err, &d) || d.Kind != KindNoDescriptors {
		t.Fatal(err)
	}
}

func TestErrorTextNamesActionAddressAndCauseOnce(t *testing.T) {
	target := Target{Network: "tcp", Address: "10.0.0.7:8080",
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errno("connect", syscall.ECONNREFUSED)
		}}
	d := fail(t, makePool(t, target, Options{}), t.Context(), GetOptions{})
	if got, want := d.Error(), "dial upstream 10.0.0.7:8080: connect: connection refused"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}

func TestDNSFailure(t *testing.T) {
	for name, c := range map[string]struct {
		ips  []netip.Addr
		err  error
		want DialKind
	}{
		"not found":  {err: &net.DNSError{Err: "no such host", Name: "app.test", IsNotFound: true}, want: KindDNS},
		"timeout":    {err: context.DeadlineExceeded, want: KindDNS},
		"odd":        {err: io.ErrUnexpectedEOF, want: KindDNS},
		"no address": {want: KindDNS},
		"no socket":  {err: errno("socket", syscall.EMFILE), want: KindNoDescriptors},
	} {
		target := Target{Network: "tcp", Address: "app.test:80",
			Resolve: func(context.Context, string) ([]netip.Addr, error) { return c.ips, c.err }}
		d := fail(t, makeGroup(t, target, Options{}), t.Context(), GetOptions{})
		if d.Kind != c.want || d.Addr != "app.test:80" || c.err != nil && !errors.Is(d, c.err) {
			t.Errorf("%s: %s at %s: %v", name, d.Kind, d.Addr, d)
		}
	}
}

func TestCancelEndsResolvingAndDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, target := range map[string]Target{
			"resolving": {Network: "tcp", Address: "app.test:80", Resolve: func(ctx context.Context, _ string) ([]netip.Addr, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			"dialling": {Network: "tcp", Address: "app.test:80", Dial: silent},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			p := makeGroup(t, target, Options{})
			go func() {
				synctest.Wait()
				if p.Stats().Dialing != 1 {
					t.Errorf("%s: %d dialling, want 1", name, p.Stats().Dialing)
				}
				cancel()
			}()
			began := time.Now()
			d := fail(t, p, ctx, GetOptions{})
			if d.Kind != KindCanceled || time.Since(began) != 0 {
				t.Errorf("%s: %s after %v", name, d.Kind, time.Since(began))
			}
		}
	})
}

// silent is an address that never answers.
func silent(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestNamesAreResolvedForEveryDial(t *testing.T) {
	s := tcpServer(t)
	target := resolving(s.addr.(*net.TCPAddr).Port, "127.0.0.1")
	asked, resolve := 0, target.Resolve
	target.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
		asked++
		return resolve(ctx, host)
	}
	p := makeGroup(t, target, Options{})
	for range 3 {
		if c := get(t, p, GetOptions{Fresh: true}); c.Addr != s.addr.String() {
			t.Fatalf("Addr %s", c.Addr)
		}
	}
	if asked != 3 {
		t.Fatalf("resolved %d times for 3 dials", asked)
	}
}

func TestEveryAddressIsTriedInOrder(t *testing.T) {
	var tried []string
	target := resolving(80, "10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2", "10.0.0.3")
	target.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
		tried = append(tried, addr)
		if addr == "10.0.0.3:80" {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })
			return near, nil
		}
		return nil, errno("connect", syscall.ECONNREFUSED)
	}
	p := makeGroup(t, target, Options{})
	if c := get(t, p, GetOptions{}); c.Addr != "10.0.0.3:80" {
		t.Fatalf("connected to %s", c.Addr)
	}
	if want := []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}; !slices.Equal(tried, want) {
		t.Fatalf("tried %v, want %v", tried, want)
	}
	if got := p.Stats(); got.DialErrors != [NumDialKinds]uint64{KindRefused: 2} || got.Dials != 1 {
		t.Fatalf("two addresses that refused and one that did not are counted as %+v", got)
	}
}

func TestWhenAllAddressesFailTheLastGivesTheKindAndAllAreReported(t *testing.T) {
	target := resolving(80, "10.0.0.1", "10.0.0.2")
	target.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
		if addr == "10.0.0.1:80" {
			return nil, errno("connect", syscall.ECONNREFUSED)
		}
		return nil, errno("connect", syscall.EHOSTUNREACH)
	}
	p := makeGroup(t, target, Options{})
	d := fail(t, p, t.Context(), GetOptions{})
	if d.Kind != KindUnreachable || d.Addr != "10.0.0.2:80" || !errors.Is(d, syscall.ECONNREFUSED) || !errors.Is(d, syscall.EHOSTUNREACH) {
		t.Fatalf("%s at %s: %v", d.Kind, d.Addr, d)
	}
	if n := p.Stats().DialErrors; n[KindUnreachable] != 1 || n[KindRefused] != 1 {
		t.Fatalf("two addresses that failed are counted as %v", n)
	}
}

func TestDialStopsWithoutDescriptors(t *testing.T) {
	target, tried := resolving(80, "10.0.0.1", "10.0.0.2"), 0
	target.Dial = func(context.Context, string, string) (net.Conn, error) {
		tried++
		return nil, errno("socket", syscall.EMFILE)
	}
	if fail(t, makeGroup(t, target, Options{}), t.Context(), GetOptions{}); tried != 1 {
		t.Fatalf("tried %d addresses", tried)
	}
}

func TestTimeIsSharedAmongAddresses(t *testing.T) {
	for _, c := range []struct {
		name       string
		addresses  int
		timeout    time.Duration
		ctx        time.Duration // 0 = none
		answers    int           // index of the one that answers at once; -1 = none
		tried      int
		took       time.Duration
		wantFailed bool
	}{
		{name: "one has it all", addresses: 1, timeout: 3 * time.Second, answers: -1, tried: 1, took: 3 * time.Second, wantFailed: true},
		{name: "two halve it", addresses: 2, timeout: 3 * time.Second, answers: 1, tried: 2, took: 1500 * time.Millisecond},
		{name: "three", addresses: 3, timeout: 3 * time.Second, answers: 2, tried: 3, took: 2 * time.Second},
		{name: "all silent", addresses: 3, timeout: 3 * time.Second, answers: -1, tried: 3, took: 3 * time.Second, wantFailed: true},
		{name: "many have a least share", addresses: 200, timeout: 3 * time.Second, answers: -1, tried: 12, took: 3 * time.Second, wantFailed: true},
		{name: "at least four", addresses: 200, timeout: 80 * time.Millisecond, answers: -1, tried: 4, took: 80 * time.Millisecond, wantFailed: true},
		{name: "the client has less time", addresses: 2, timeout: 3 * time.Second, ctx: 100 * time.Millisecond, answers: 1, tried: 2, took: 50 * time.Millisecond},
		{name: "the default", addresses: 1, answers: -1, tried: 1, took: DefaultDialTimeout, wantFailed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ips []string
				for i := range c.addresses {
					ips = append(ips, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
				}
				target, tried := resolving(80, ips...), 0
				target.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					tried++
					if tried-1 == c.answers {
						return newMemoryConn(t), nil
					}
					return silent(ctx, network, addr)
				}
				ctx := t.Context()
				if c.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.ctx)
					defer cancel()
				}
				began := time.Now()
				_, err := makeGroup(t, target, Options{}).Get(ctx, GetOptions{DialTimeout: c.timeout})
				if took := time.Since(began); (err != nil) != c.wantFailed || tried != c.tried || took != c.took {
					t.Fatalf("tried %d in %v, %v; want %d in %v", tried, took, err, c.tried, c.took)
				}
				var d *DialError
				if errors.As(err, &d) && d.Kind != KindTimeout {
					t.Fatalf("kind %s", d.Kind)
				}
			})
		})
	}
}

func TestARetryPrefersAnotherAddress(t *testing.T) {
	s := tcpServer(t)
	port := s.addr.(*net.TCPAddr).Port
	s2 := listen(t, "tcp", fmt.Sprintf("127.0.0.2:%d", port))
	p := makeGroup(t, resolving(port, "127.0.0.1", "127.0.0.2"), Options{})
	avoid := GetOptions{Avoid: s.addr.String(), MaxIdle: time.Hour}

	a := get(t, p, GetOptions{})
	if a.Addr != s.addr.String() {
		t.Fatalf("first to %s", a.Addr)
	}
	a.Release(0)
	b := get(t, p, avoid)
	if b.Addr != s2.addr.String() || b.Reused {
		t.Fatalf("then to %s, reused %v; want a new one to %s", b.Addr, b.Reused, s2.addr)
	}
	b.Release(0)
	a = get(t, p, GetOptions{Avoid: s2.addr.String(), MaxIdle: time.Hour})
	if a.Addr != s.addr.String() || !a.Reused {
		t.Fatalf("from the pool came %s", a.Addr)
	}
	a.Release(0)
	if c := p.TryPooled(&avoid); c != b {
		t.Fatal("the other pooled one was not found below the avoided one")
	}
}

func TestTheOnlyAddressIsUsedThoughAvoided(t *testing.T) {
	s := tcpServer(t)
	for name, target := range map[string]Target{
		"literal": s.target(), "name": resolving(s.addr.(*net.TCPAddr).Port, "127.0.0.1"),
	} {
		p := makeGroup(t, target, Options{})
		o := GetOptions{Avoid: s.addr.String(), MaxIdle: time.Hour}
		c := get(t, p, o)
		c.Release(0)
		if p.TryPooled(&o) != c {
			t.Errorf("%s: the pooled connection to the only address was not used", name)
		}
	}
}

func TestAvoidedAddressIsTriedLast(t *testing.T) {
	s := tcpServer(t)
	port := s.addr.(*net.TCPAddr).Port // nobody listens there on 127.0.0.3
	p := makeGroup(t, resolving(port, "127.0.0.1", "127.0.0.3"), Options{})
	if c := get(t, p, GetOptions{Avoid: s.addr.String()}); c.Addr != s.addr.String() {
		t.Fatalf("connected to %s", c.Addr)
	}
}

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/bench/internal/cgroup"
)

// memoryLimits are those of containers that a sidecar is given.
var memoryLimits = []int64{64 * mib, 128 * mib, 256 * mib}

// memoryAttack is one way to fill the memory.
type memoryAttack struct {
	name   string
	conns  int
	strike func(*strike) error
	secure bool // over TLS
}

// memoryAttacks are made against a process in a cgroup with little memory. It must
// not be killed for it, and whoever comes anew is served within a second.
func memoryAttacks() (all []attack) {
	for _, limit := range memoryLimits {
		for _, a := range []memoryAttack{
			{name: "HTTP/2, 128 responses unread on each connection", conns: 40, strike: unreadStreams},
			{name: "HTTP/2, 128 requests without a response on each connection", conns: 40, strike: stuckStreams},
			{name: "slow readers", conns: 1600, strike: slowReader},
			{name: "TLS, idle", conns: 1600, strike: idleTLS, secure: true},
		} {
			all = append(all, attack{
				name: fmt.Sprintf("%d MiB: %s", limit/mib, a.name), conns: a.conns, bound: limit, why: "the cgroup",
				prepare: within(limit, a.strike, a.secure),
			})
		}
	}
	return all
}

// impossible is what a row cannot be played for here.
type impossible struct{ why string }

func (i impossible) Error() string { return i.why }

// within has the proxy run in a cgroup.
func within(limit int64, strike func(*strike) error, secure bool) func(*stage) error {
	return func(st *stage) error {
		g, err := cgroup.New(fmt.Sprintf("attacks-%d", os.Getpid()), limit)
		if err != nil {
			return impossible{err.Error()}
		}
		st.later(g.Remove)
		st.by, st.strike, st.secure = g.By(), strike, secure
		if secure {
			if err := st.certify(); err != nil {
				return err
			}
		}
		b := &bystander{others: newOthers(secure), group: g, limit: limit}
		st.beside, st.judge = b.come, b.judge
		return nil
	}
}

// certify has the proxy listen over TLS.
func (st *stage) certify() error {
	dir, err := st.tempDir()
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"bench.test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "both.pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	st.env = append(st.env, "RETRYPROXY_TLS_CERT="+file, "RETRYPROXY_TLS_KEY="+file)
	return os.WriteFile(file, both, 0o600)
}

// bystander asks on a new connection each time, by HTTP/1.1 and by HTTP/2 in turn.
type bystander struct {
	findings
	*others
	group       *cgroup.Group
	limit       int64
	asked, late atomic.Int64
	slowest     atomic.Int64 // in nanoseconds
}

const (
	bystanderEvery = 100 * time.Millisecond
	servedWithin   = time.Second
	// mostLate in a hundred may be later, but none is refused: the attackers have the same cores.
	mostLate = 2
)

func (b *bystander) come(ctx context.Context, p *proxy) {
	for n := 0; ctx.Err() == nil; n++ {
		c := b.http1
		if n%2 == 1 {
			c = b.http2
		}
		began := time.Now()
		err := ask(c, b.scheme+"://"+p.Addr)
		c.CloseIdleConnections()
		took := time.Since(began)
		if err != nil && ctx.Err() == nil {
			b.add("a bystander was not served after %v: %v", took, err)
		}
		b.asked.Add(1)
		if took > servedWithin {
			b.late.Add(1)
		}
		b.slowest.Store(max(b.slowest.Load(), int64(took)))
		select {
		case <-ctx.Done():
		case <-time.After(bystanderEvery):
		}
	}
}

func (b *bystander) judge(p *proxy) (string, []string) {
	b.atLeast(5, b.asked.Load(), "bystanders")
	if late := b.late.Load(); late*100 > b.asked.Load()*mostLate {
		b.add("%d of %d bystanders were served after more than %v", late, b.asked.Load(), servedWithin)
	}
	kills, err := b.group.Kills()
	if err != nil || kills > 0 {
		b.add("killed for its memory %d times (%v)", kills, err)
	}
	peak, _ := b.group.Peak()
	return fmt.Sprintf("%d bystanders, %d of them later than %v, the slowest after %v; %d evicted; peak %.1f of %d MiB (cgroup version %d)", b.asked.Load(), b.late.Load(), servedWithin,
		time.Duration(b.slowest.Load()).Round(time.Millisecond), evictedBy(p), mibOf(peak), b.limit/mib, b.group.Version), b.all()
}

// comeAgain is how long one waits that was turned away: to come at once would be another attack, on the cores.
const comeAgain = time.Second

func (s *strike) later(err error) error {
	select {
	case <-s.Done():
	case <-time.After(comeAgain):
	}
	return err
}

// evictedBy is how many clients the proxy has ended for others.
func evictedBy(p *proxy) int64 {
	m, err := p.metrics()
	if err != nil {
		return -1
	}
	return int64(m[`retryproxy_clients_evicted_total{state="idle"}`] + m[`retryproxy_clients_evicted_total{state="stalled"}`])
}

func unreadStreams(s *strike) error {
	f, err := s.http2(true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if err != nil {
		return s.later(err)
	}
	return s.later(s.refill(f, "/medium"))
}

func stuckStreams(s *strike) error {
	f, err := s.http2(true)
	if err != nil {
		return s.later(err)
	}
	return s.later(s.refill(f, "/deaf"))
}

// refill begins as many streams as may be, once more every second: some have been refused.
func (s *strike) refill(f *frames, path string) error {
	return s.every(comeAgain, func() error {
		if err := fill(f, path); err != nil {
			return err
		}
		s.sent.Add(atOnce)
		return nil
	})
}

func slowReader(s *strike) error {
	nc, err := s.dial()
	if err != nil {
		return s.later(err)
	}
	defer nc.Close()
	_ = nc.(*net.TCPConn).SetReadBuffer(4 * kib) // else the attack is on the cores, with megabytes for each one's kernel
	if _, err := io.WriteString(nc, "GET /large HTTP/1.1\r\nHost: bench.test\r\n\r\n"); err != nil {
		return s.later(err)
	}
	var p [kib]byte
	return s.later(s.every(time.Second, func() error { _, err := nc.Read(p[:]); return err }))
}

func idleTLS(s *strike) error {
	nc, err := s.dial()
	if err != nil {
		return s.later(err)
	}
	defer nc.Close()
	c := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // it is signed by itself
	if err := c.HandshakeContext(s); err != nil {
		return s.later(err)
	}
	s.sent.Add(1)
	return s.later(s.held(c))
}

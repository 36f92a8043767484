package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// relay stands in for the proxy: it passes bytes both ways and knows nothing
// of HTTP. spoil may change what goes to the client.
type relay struct {
	ln    net.Listener
	to    string
	spoil func([]byte)
	wg    sync.WaitGroup
}

func startRelay(t *testing.T, to string, spoil func([]byte)) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, to: to, spoil: spoil}
	r.wg.Go(r.accept)
	t.Cleanup(func() { ln.Close(); r.wg.Wait() })
	return r
}

func (r *relay) accept() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c.(*net.TCPConn)) })
	}
}

func (r *relay) serve(c *net.TCPConn) {
	defer c.Close()
	u, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	up := u.(*net.TCPConn)
	defer up.Close()
	var wg sync.WaitGroup
	wg.Go(func() { pass(up, c, nil) })
	wg.Go(func() { pass(c, up, r.spoil) })
	wg.Wait()
}

// pass copies one way; the end of the source is that of the destination.
func pass(to, from *net.TCPConn, spoil func([]byte)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if spoil != nil {
			spoil(buf[:n])
		}
		if _, werr := to.Write(buf[:n]); werr != nil {
			from.Close()
			return
		}
		if err == io.EOF {
			to.CloseWrite()
			return
		}
		if err != nil {
			to.SetLinger(0)
			to.Close()
			return
		}
	}
}

// soakRelay runs clients against a relay for a moment.
func soakRelay(t *testing.T, spoil func([]byte)) *ledger {
	t.Helper()
	l := newLedger(5)
	up, err := startUpstream(l, true)
	if err != nil {
		t.Fatal(err)
	}
	tm := &team{ledger: l, seed: l.seed, proxy: startRelay(t, up.addr, spoil).ln.Addr().String(),
		judge: &judge{ledger: l, timeout: attemptTimeout}, patience: 2 * time.Second}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 20 {
		c := &client{t: tm, from: net.IPv4(127, 0, 0, 1)}
		wg.Go(func() { c.run(ctx) })
	}
	wg.Wait()
	up.end()
	if tm.sent.Load() < 50 {
		t.Errorf("only %d requests were sent", tm.sent.Load())
	}
	return l
}

// A relay that changes nothing keeps all bytes, and is found out for all that
// a proxy must do besides.
func TestARelayIsFoundOut(t *testing.T) {
	l := soakRelay(t, nil)
	for _, kind := range []string{"response body changed", "request body changed",
		"request trailer changed", "cut response looks whole", "cut upload looks whole"} {
		if slices.Contains(l.Kinds(), kind) {
			t.Errorf("a relay that changes nothing is charged with %q", kind)
		}
	}
	for _, kind := range []string{"attempts not told", "no response", "hop-by-hop field", "malformed request forwarded", "answer from nowhere", "request headers changed"} {
		if !slices.Contains(l.Kinds(), kind) {
			t.Errorf("a relay is not charged with %q", kind)
		}
	}
	if !strings.Contains(strings.Join(l.All(), "\n"), "X-Forwarded-For set is false") {
		t.Error("a relay is not charged with a missing X-Forwarded-For")
	}
	if t.Failed() {
		t.Log(strings.Join(l.All(), "\n"))
	}
}

func TestAChangedByteIsFoundOut(t *testing.T) {
	l := soakRelay(t, func(p []byte) {
		if len(p) > 3000 {
			p[2900] ^= 0x80
		}
	})
	if !slices.Contains(l.Kinds(), "response body changed") {
		t.Errorf("not found; violations are %q", l.Kinds())
	}
}

func TestWrongArgumentsAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{{"--for", "0s"}, {"--conns", "0"}, {"--conns", "x"}, {"more"}, {"--nonsense"}} {
		var out, errs bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "soak", args, &out, &errs); code != rig.Usage || errs.Len() == 0 {
			t.Errorf("%q: exit code %d, said %q", args, code, &errs)
		}
	}
}

// A proxy that ends at once is told with what it said.
func TestAProxyThatDoesNotStartIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "proxy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho it cannot be >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := rig.Program(run).Run(t.Context(), "soak", []string{"--proxy", path}, &out, &errs); code != rig.Failed || !strings.Contains(errs.String(), "it cannot be") {
		t.Errorf("exit code %d, said %q", code, &errs)
	}
}

// TestAResetThatTheWriterIsTold: a reset ends a response that only the end of
// the connection delimits; the kernel tells the client's writer of it, so its
// reader sees the response end in order.
func TestAResetThatTheWriterIsTold(t *testing.T) {
	for name, reset := range map[string]bool{"reset": true, "closed": false} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			p := &plan{id: 1, method: "GET"}
			for newAct(1, p.id, 0).body.size < 5 {
				p.id++
			}
			head := "HTTP/1.0 200 OK\r\n" + fieldAttempt + ": 0\r\n\r\n" + string(whole(newAct(1, p.id, 0).body)[:4])
			go func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, head)
				if reset {
					io.CopyN(io.Discard, c, 4)
					c.(*net.TCPConn).SetLinger(0)
				} else {
					c.(*net.TCPConn).CloseWrite()
					io.CopyN(io.Discard, c, 4000)
				}
				c.Close()
			}()
			c := &client{t: &team{ledger: newLedger(1), seed: 1, proxy: ln.Addr().String(), patience: 5 * time.Second}, from: net.IPv4(127, 0, 0, 1)}
			if !c.dial() {
				t.Fatal(c.t.ledger.All())
			}
			defer c.hangUp(false)
			w := &writing{t: c.t, rest: func(conn io.Writer) error {
				for range 1000 {
					if _, err := conn.Write([]byte("more")); err != nil {
						return err
					}
					time.Sleep(100 * time.Microsecond)
				}
				return nil
			}}
			w.begin(c.conn)
			<-w.done // so that the writer is told first
			got := c.read(c.t.ledger.open(p), w)
			if cut := got.err != nil; cut != reset || (got.wrong == "") != reset {
				t.Errorf("the response is cut: %v (%v, %q)", cut, got.err, got.wrong)
			}
		})
	}
}

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

// startRelay starts what stands in for the proxy: it passes bytes both ways and knows nothing of HTTP.
// spoil may change what goes to the client.
func startRelay(t *testing.T, to string, spoil func([]byte)) (addr string) {
	t.Helper()
	s := &rig.Server{Take: func(c net.Conn) {
		u, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer u.Close()
		var both sync.WaitGroup
		both.Go(func() { pass(u, c, func([]byte) {}) })
		both.Go(func() { pass(c, u, spoil) })
		both.Wait()
	}}
	var bed rig.Bed
	addr, err := bed.Accept("127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.End(); s.Wait(time.Minute) })
	return addr
}

// pass copies one way; the end of the source is that of the destination.
func pass(to, from net.Conn, spoil func([]byte)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		spoil(buf[:n])
		if _, werr := to.Write(buf[:n]); werr != nil {
			from.Close()
			return
		}
		if err == io.EOF {
			to.(*net.TCPConn).CloseWrite()
			return
		}
		if err != nil {
			rig.Reset(to)
			return
		}
	}
}

// soakRelay runs clients against a relay until they have sent enough to meet everything, however long
// that takes here.
func soakRelay(t *testing.T, spoil func([]byte)) *soak {
	t.Helper()
	s := newSoak(5)
	upstream, end, err := s.start(true)
	if err != nil {
		t.Fatal(err)
	}
	relay := startRelay(t, upstream, spoil)
	const enough = 1200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 20 {
		c := &client{soak: s, proxy: relay, from: net.IPv4(127, 0, 0, 1), patience: 2 * time.Second}
		all.Go(func() { c.run(ctx) })
	}
	for s.Counted(sent) < enough {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	all.Wait()
	end()
	return s
}

// A relay that changes nothing keeps all bytes, and is found out for all that
// a proxy must do besides.
func TestARelayIsFoundOut(t *testing.T) {
	l := soakRelay(t, func([]byte) {})
	for _, kind := range []string{"response body changed", "request body changed",
		"request trailer changed", "cut response looks whole", "cut upload looks whole"} {
		if slices.Contains(l.Kinds(), kind) {
			t.Errorf("a relay that changes nothing is charged with %q", kind)
		}
	}
	for _, kind := range []string{"attempts not told", "no response", "hop-by-hop field", "answer from nowhere", "request headers changed"} {
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
			for newScript(1, p.id, 0).body.size < 5 {
				p.id++
			}
			head := "HTTP/1.0 200 OK\r\n" + fieldAttempt + ": 0\r\n\r\n" + string(allOf(newScript(1, p.id, 0).body)[:4])
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
			c := &client{soak: newSoak(1), proxy: ln.Addr().String(), patience: 5 * time.Second, from: net.IPv4(127, 0, 0, 1)}
			if !c.dial() {
				t.Fatal(c.All())
			}
			defer c.disconnect(false)
			w := &upload{patience: c.patience, rest: func(conn io.Writer) error {
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
			got := c.read(p, w)
			if cut := got.err != nil; cut != reset || (got.wrong == "") != reset {
				t.Errorf("the response is cut: %v (%v, %q)", cut, got.err, got.wrong)
			}
		})
	}
}

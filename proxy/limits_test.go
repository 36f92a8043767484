package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/request"
)

func TestRequestHeadersMustArriveInTime(t *testing.T) {
	inMemory(t, script(ok200), nil, func(t *testing.T, m *memory) {
		c := m.client()
		for range 2 { // also later on the connection, and not counted from its begin
			time.Sleep(20 * time.Second)
			c.send("GET / HTTP/1.1\r\n")
			time.Sleep(4900 * time.Millisecond)
			c.send("Host: a\r\n\r\n").want(200, "ok")
		}
		began := time.Now()
		go func() { // one byte a second does not help
			for range 20 {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		res := c.want(408, "*")
		if d := time.Since(began); d != 5*time.Second || !res.Close {
			t.Errorf("answered after %v, close %v; want 5 s and an end", d, res.Close)
		}
		c.wantEnd("")
		time.Sleep(time.Minute)
		if o := m.seen.outcome(t, 2); o != policy.OutcomeRequestTimeout || m.up.sends() != 2 {
			t.Errorf("outcome %v, %d sends", o, m.up.sends())
		}
	})
}

func TestAnIdleClientIsClosedQuietly(t *testing.T) {
	inMemory(t, script(ok200), func(c *Config) { c.ClientIdleTimeout = 620 * time.Second }, func(t *testing.T, m *memory) {
		fresh, used := m.client(), m.client()
		used.send(get("/")).want(200, "ok")
		time.Sleep(614 * time.Second)
		used.send(get("/")).want(200, "ok")
		began := time.Now()
		fresh.wantEnd("")
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("the unused connection ended after %v", d+614*time.Second)
		}
		used.wantEnd("")
		if d := time.Since(began); d < 615*time.Second || d > 620*time.Second {
			t.Errorf("the idle connection ended after %v, want 615 to 620 s", d)
		}
		if n := len(m.seen.outcomes); n != 2 {
			t.Errorf("%d requests counted, want 2", n)
		}
	})
}

func TestABodyMayNotPauseForLong(t *testing.T) {
	for _, name := range []string{"length", "chunked"} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(c *upConn) { discardBody(c, c.head()) }, func(c *Config) { c.Default.BodyIdleTimeout = 7 * time.Second }, func(t *testing.T, m *memory) {
				c := m.client()
				piece := "x"
				if name == "length" {
					c.send(requestText("POST / HTTP/1.1", "Host: a", "Content-Length: 100"))
				} else {
					piece = "1\r\nx\r\n"
					c.send(requestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"))
				}
				for range 3 {
					time.Sleep(6 * time.Second)
					c.send(piece)
				}
				began := time.Now()
				c.want(408, "*")
				if d := time.Since(began); d < 7*time.Second || d > 8*time.Second {
					t.Errorf("ended after %v, want 7 s to 8 s", d)
				}
				synctest.Wait()
				if o := m.seen.outcome(t, 0); o != policy.OutcomeRequestTimeout {
					t.Errorf("outcome %v", o)
				}
			})
		})
	}
}

func TestABodyAtTheMinimumRateIsServed(t *testing.T) {
	handle := func(c *upConn) { discardBody(c, c.head()); c.say(ok200) }
	inMemory(t, handle, func(c *Config) { c.MinBodyRate = 100 }, func(t *testing.T, m *memory) {
		c := m.client().send(requestText("POST / HTTP/1.1", "Host: a", "Content-Length: 6000"))
		for range 60 {
			time.Sleep(time.Second)
			c.send(strings.Repeat("x", 100))
		}
		c.want(200, "ok")
	})
}

// An upstream that reads nothing for a while is not the client's slowness.
func TestAPauseOfTheUpstreamIsNotTheClients(t *testing.T) {
	for name, framing := range map[string]string{"length": "Content-Length: 1000000", "chunked": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *upConn) {
				headers := c.head()
				time.Sleep(request.BodyGrace + 20*time.Second)
				discardBody(c, headers)
				c.say(ok200)
			}
			inMemory(t, handle, func(c *Config) {
				c.MinBodyRate, c.Default.RetryBufferBytes, c.Default.BodyIdleTimeout = 100_000, 1, time.Minute
			}, func(t *testing.T, m *memory) {
				c := m.client().send(requestText("POST / HTTP/1.1", "Host: a", framing))
				body := strings.Repeat("x", 1_000_000)
				if name == "chunked" {
					body = chunks([]byte(body), 10_000)
				}
				go func() { _, _ = io.WriteString(c.Conn, body) }()
				c.want(200, "ok")
			})
		})
	}
}

func TestAClientThatReadsNothingIsCutOff(t *testing.T) {
	responses := map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 1<<20, strings.Repeat("x", 1<<20)),
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(randomBytes(1<<20), 10000),
	}
	for name, response := range responses {
		t.Run(name, func(t *testing.T) {
			inMemory(t, script(response), nil, func(t *testing.T, m *memory) {
				c := m.client().send(get("/"))
				buf := make([]byte, 100<<10)
				for range 5 { // slow, but it reads
					time.Sleep(9 * time.Second)
					if _, err := io.ReadFull(c.Conn, buf); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(21 * time.Second) // the write timeout is 10 s
				if n, err := io.Copy(io.Discard, c.Conn); n > int64(buffer.Medium+buffer.Large) {
					t.Errorf("then came %d bytes, %v", n, err)
				}
				synctest.Wait()
				if o := m.seen.outcome(t, 0); o != policy.OutcomeClientGone {
					t.Errorf("outcome %v", o)
				}
			})
		})
	}
}

// The same with real sockets and a response that moves by splice.
func TestAClientThatReadsNothingOfALargeResponseIsCutOff(t *testing.T) {
	end := make(chan error, 1)
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", largeSize)
		_, err := io.Copy(c.Conn, &pattern{n: largeSize})
		end <- err
	})
	p := startProxy(t, u, func(c *Config) { c.WriteTimeout = 100 * time.Millisecond })
	c := p.dial().send(get("/"))
	if err := within(t, "the end upstream", end); err == nil {
		t.Error("the upstream could send all of it")
	}
	p.wantOutcome(0, policy.OutcomeClientGone)
	if s, err := c.rest(); err == nil || len(s) >= largeSize {
		t.Errorf("the client could still read %d bytes and an orderly end", len(s))
	}
}

func TestMaxConnectionsPausesAcceptingWhileAllAreBusy(t *testing.T) {
	goOn := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		for c.head() != "" {
			<-goOn
			c.say(ok200)
		}
	})
	p := startProxy(t, u, func(c *Config) {
		c.MaxConnections = 2
		c.Listen = []string{"127.0.0.1:0", "127.0.0.1:0"} // an idle listener takes nobody's place
	})
	a, b := p.dial().send(get("/")), p.dial().send(get("/"))
	soon(t, "two requests", func() bool { return u.sends() == 2 })
	if n := p.Stats().AcceptPauses; n != 0 {
		t.Errorf("%d pauses before the limit", n)
	}
	late := p.dial().send(get("/"))
	later := p.dial().send(get("/"))
	soon(t, "the pause", func() bool { return p.Stats().AcceptPauses == 1 })
	if n := u.sends(); n != 2 {
		t.Errorf("%d requests at a limit of two", n)
	}
	close(goOn)
	later.want(200, "ok") // one of the others is idle now and has given way
	late.want(200, "ok")
	if s := p.Stats(); s.AcceptPauses != 1 || s.Connections > 2 {
		t.Errorf("%+v, want one pause and at most two connections", s)
	}
	a.Close()
	b.Close()
}

func TestDrainEmptiesTheAcceptQueue(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		for c.head() != "" {
			<-goOn
			c.say(ok200)
		}
	})
	p := startProxy(t, u, func(c *Config) { c.MaxConnections, c.DrainTimeout = 1, patience })
	var clients []*client
	for range 4 {
		clients = append(clients, p.dial().send(get("/")))
	}
	soon(t, "the first request", func() bool { return u.sends() == 1 && p.Stats().AcceptPauses > 0 })
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	soon(t, "the queued requests", func() bool { return u.sends() == 4 })
	close(goOn)
	for _, c := range clients {
		if res := c.want(200, "ok"); !res.Close {
			t.Error("a response during the drain does not say Connection: close")
		}
	}
	if err := within(t, "the end of the drain", drained); err != nil {
		t.Error(err)
	}
	if nc, err := net.Dial("tcp", p.addr); err == nil {
		nc.Close()
		t.Error("the listener is still open")
	}
}

// startFewDescriptors runs a proxy to the upstream at addr in a process of its own, with
// room for a few more descriptors than it has. pauses asks how often it paused accepting.
func startFewDescriptors(t *testing.T, addr string) (p *front, pauses func() int) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestFewDescriptorsChild$")
	child.Env = append(os.Environ(), "FEW_DESCRIPTORS_UPSTREAM="+addr)
	in, _ := child.StdinPipe()
	out, _ := child.StdoutPipe()
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Skipf("no process of its own for the test: %v", err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = child.Wait() })
	responses := bufio.NewScanner(out)
	ask := func() (response string) {
		fmt.Fprintln(in, "?")
		for responses.Scan() {
			if s, ok := strings.CutPrefix(responses.Text(), "child: "); ok {
				return s
			}
		}
		t.Fatal("the child ended")
		return ""
	}
	p = &front{addr: ask(), t: t}
	if p.addr == "skip" {
		t.Skip("the descriptor limit cannot be lowered")
	}
	return p, func() (n int) { fmt.Sscan(ask(), &n); return n }
}

func TestNoDescriptorsPausesAccepting(t *testing.T) {
	t.Parallel()
	u := startUpstream(t, script(ok200))
	p, pauses := startFewDescriptors(t, u.Addr().String())
	first := p.dial().send(get("/"))
	first.want(200, "ok")
	var crowd []net.Conn
	for range 60 {
		nc, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, nc)
	}
	soon(t, "a pause", func() bool { return pauses() > 0 })
	first.send(get("/")).want(200, "ok") // those connected are served
	before, began := pauses(), time.Now()
	const pause = 50 * time.Millisecond // after each failed accept
	time.Sleep(10 * pause)
	if n, most := pauses()-before, int(time.Since(began)/pause)+2; n > most {
		t.Errorf("%d failed accepts in %v: it spins", n, time.Since(began))
	}
	for _, nc := range crowd {
		nc.Close()
	}
	p.dial().send(get("/")).want(200, "ok")
}

// TestFewDescriptorsChild is the process of startFewDescriptors.
func TestFewDescriptorsChild(t *testing.T) {
	addr := os.Getenv("FEW_DESCRIPTORS_UPSTREAM")
	if addr == "" {
		t.Skip("only run by startFewDescriptors")
	}
	p := startProxyTo(t, "http://"+addr, nil)
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	open, err := os.ReadDir("/proc/self/fd")
	limit := syscall.Rlimit{Cur: uint64(len(open)) + 20, Max: uint64(len(open)) + 20}
	if err != nil || syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		fmt.Println("child: skip")
		return
	}
	fmt.Println("child: " + p.addr)
	for in.Scan() {
		fmt.Println("child:", p.Stats().AcceptPauses)
	}
}

// A client accepted while the server is cut off is not served on.
func TestAClientThatComesAfterTheEndIsClosed(t *testing.T) {
	inMemory(t, script(ok200), nil, func(t *testing.T, m *memory) {
		m.stop()
		began := time.Now()
		m.client().wantEnd("")
		if d := time.Since(began); d != 0 {
			t.Errorf("closed after %v, want at once", d)
		}
	})
}

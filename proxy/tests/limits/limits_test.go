package limits

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
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/request"
)

func TestRequestHeadersMustArriveInTime(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for range 2 { // also later on the connection, and not counted from its begin
			time.Sleep(20 * time.Second)
			c.Send("GET / HTTP/1.1\r\n")
			time.Sleep(4900 * time.Millisecond)
			c.Send("Host: a\r\n\r\n").Want(200, "ok")
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
		res := c.Want(408, "*")
		if d := time.Since(began); d != 5*time.Second || !res.Close {
			t.Errorf("answered after %v, close %v; want 5 s and an end", d, res.Close)
		}
		c.WantEnd("")
		time.Sleep(time.Minute)
		if o := m.Seen.Outcome(t, 2); o != policy.OutcomeRequestTimeout || m.Up.Sends() != 2 {
			t.Errorf("outcome %v, %d sends", o, m.Up.Sends())
		}
	})
}

func TestAnIdleClientIsClosedQuietly(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) { c.ClientIdleTimeout = 620 * time.Second }, func(t *testing.T, m *proxytest.Memory) {
		fresh, used := m.Client(), m.Client()
		used.Send(peers.Get("/")).Want(200, "ok")
		time.Sleep(614 * time.Second)
		used.Send(peers.Get("/")).Want(200, "ok")
		began := time.Now()
		fresh.WantEnd("")
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("the unused connection ended after %v", d+614*time.Second)
		}
		used.WantEnd("")
		if d := time.Since(began); d < 615*time.Second || d > 620*time.Second {
			t.Errorf("the idle connection ended after %v, want 615 to 620 s", d)
		}
		if n := len(m.Seen.Outcomes); n != 2 {
			t.Errorf("%d requests counted, want 2", n)
		}
	})
}

func TestABodyMayNotPauseForLong(t *testing.T) {
	for _, name := range []string{"length", "chunked"} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, func(c *peers.Conn) { peers.DiscardBody(c, c.Head()) }, func(c *proxy.Config) { c.Default.BodyIdleTimeout = 7 * time.Second }, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				piece := "x"
				if name == "length" {
					c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 100"))
				} else {
					piece = "1\r\nx\r\n"
					c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"))
				}
				for range 3 {
					time.Sleep(6 * time.Second)
					c.Send(piece)
				}
				began := time.Now()
				c.Want(408, "*")
				if d := time.Since(began); d < 7*time.Second || d > 8*time.Second {
					t.Errorf("ended after %v, want 7 s to 8 s", d)
				}
				synctest.Wait()
				if o := m.Seen.Outcome(t, 0); o != policy.OutcomeRequestTimeout {
					t.Errorf("outcome %v", o)
				}
			})
		})
	}
}

func TestABodyAtTheMinimumRateIsServed(t *testing.T) {
	handle := func(c *peers.Conn) { peers.DiscardBody(c, c.Head()); c.Say(peers.OK200) }
	proxytest.InMemory(t, handle, func(c *proxy.Config) { c.MinBodyRate = 100 }, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 6000"))
		for range 60 {
			time.Sleep(time.Second)
			c.Send(strings.Repeat("x", 100))
		}
		c.Want(200, "ok")
	})
}

// An upstream that reads nothing for a while is not the client's slowness.
func TestAPauseOfTheUpstreamIsNotTheClients(t *testing.T) {
	for name, framing := range map[string]string{"length": "Content-Length: 1000000", "chunked": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *peers.Conn) {
				headers := c.Head()
				time.Sleep(request.BodyGrace + 20*time.Second)
				peers.DiscardBody(c, headers)
				c.Say(peers.OK200)
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				c.MinBodyRate, c.Default.RetryBufferBytes, c.Default.BodyIdleTimeout = 100_000, 1, time.Minute
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", framing))
				body := strings.Repeat("x", 1_000_000)
				if name == "chunked" {
					body = peers.Chunks([]byte(body), 10_000)
				}
				go func() { _, _ = io.WriteString(c.Conn, body) }()
				c.Want(200, "ok")
			})
		})
	}
}

func TestAClientThatReadsNothingIsCutOff(t *testing.T) {
	responses := map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 1<<20, strings.Repeat("x", 1<<20)),
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + peers.Chunks(peers.RandomBytes(1<<20), 10000),
	}
	for name, response := range responses {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.Script(response), nil, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client().Send(peers.Get("/"))
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
				if o := m.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
					t.Errorf("outcome %v", o)
				}
			})
		})
	}
}

// The same with real sockets and a response that moves by splice.
func TestAClientThatReadsNothingOfALargeResponseIsCutOff(t *testing.T) {
	end := make(chan error, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", peers.LargeSize)
		_, err := io.Copy(c.Conn, &peers.Pattern{N: peers.LargeSize})
		end <- err
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.WriteTimeout = 100 * time.Millisecond })
	c := p.Dial().Send(peers.Get("/"))
	if err := peers.Within(t, "the end upstream", end); err == nil {
		t.Error("the upstream could send all of it")
	}
	p.WantOutcome(0, policy.OutcomeClientGone)
	if s, err := c.Rest(); err == nil || len(s) >= peers.LargeSize {
		t.Errorf("the client could still read %d bytes and an orderly end", len(s))
	}
}

func TestMaxConnectionsPausesAcceptingWhileAllAreBusy(t *testing.T) {
	goOn := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for c.Head() != "" {
			<-goOn
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.MaxConnections = 2
		c.Listen = []string{"127.0.0.1:0", "127.0.0.1:0"} // an idle listener takes nobody's place
	})
	a, b := p.Dial().Send(peers.Get("/")), p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "two requests", func() bool { return u.Sends() == 2 })
	if n := p.Stats().AcceptPauses; n != 0 {
		t.Errorf("%d pauses before the limit", n)
	}
	late := p.Dial().Send(peers.Get("/"))
	later := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "the pause", func() bool { return p.Stats().AcceptPauses == 1 })
	if n := u.Sends(); n != 2 {
		t.Errorf("%d requests at a limit of two", n)
	}
	close(goOn)
	later.Want(200, "ok") // one of the others is idle now and has given way
	late.Want(200, "ok")
	if s := p.Stats(); s.AcceptPauses != 1 || s.Connections > 2 {
		t.Errorf("%+v, want one pause and at most two connections", s)
	}
	a.Close()
	b.Close()
}

func TestDrainEmptiesTheAcceptQueue(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for c.Head() != "" {
			<-goOn
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.MaxConnections, c.DrainTimeout = 1, peers.Patience })
	var clients []*peers.Client
	for range 4 {
		clients = append(clients, p.Dial().Send(peers.Get("/")))
	}
	peers.Soon(t, "the first request", func() bool { return u.Sends() == 1 && p.Stats().AcceptPauses > 0 })
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	peers.Soon(t, "the queued requests", func() bool { return u.Sends() == 4 })
	close(goOn)
	for _, c := range clients {
		if res := c.Want(200, "ok"); !res.Close {
			t.Error("a response during the drain does not say Connection: close")
		}
	}
	if err := peers.Within(t, "the end of the drain", drained); err != nil {
		t.Error(err)
	}
	if nc, err := net.Dial("tcp", p.Addr); err == nil {
		nc.Close()
		t.Error("the listener is still open")
	}
}

// startFewDescriptors runs a proxy to the upstream at addr in a process of its own, with
// room for a few more descriptors than it has. pauses asks how often it paused accepting.
func startFewDescriptors(t *testing.T, addr string) (p *peers.Front, pauses func() int) {
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
	p = &peers.Front{Addr: ask(), T: t}
	if p.Addr == "skip" {
		t.Skip("the descriptor limit cannot be lowered")
	}
	return p, func() (n int) { fmt.Sscan(ask(), &n); return n }
}

func TestNoDescriptorsPausesAccepting(t *testing.T) {
	t.Parallel()
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p, pauses := startFewDescriptors(t, u.Addr().String())
	first := p.Dial().Send(peers.Get("/"))
	first.Want(200, "ok")
	var crowd []net.Conn
	for range 60 {
		nc, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, nc)
	}
	peers.Soon(t, "a pause", func() bool { return pauses() > 0 })
	first.Send(peers.Get("/")).Want(200, "ok") // those connected are served
	before, began := pauses(), time.Now()
	const pause = 50 * time.Millisecond // after each failed accept
	time.Sleep(10 * pause)
	if n, most := pauses()-before, int(time.Since(began)/pause)+2; n > most {
		t.Errorf("%d failed accepts in %v: it spins", n, time.Since(began))
	}
	for _, nc := range crowd {
		nc.Close()
	}
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
}

// TestFewDescriptorsChild is the process of startFewDescriptors.
func TestFewDescriptorsChild(t *testing.T) {
	addr := os.Getenv("FEW_DESCRIPTORS_UPSTREAM")
	if addr == "" {
		t.Skip("only run by startFewDescriptors")
	}
	p := proxytest.StartTo(t, "http://"+addr, nil)
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	open, err := os.ReadDir("/proc/self/fd")
	limit := syscall.Rlimit{Cur: uint64(len(open)) + 20, Max: uint64(len(open)) + 20}
	if err != nil || syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		fmt.Println("child: skip")
		return
	}
	fmt.Println("child: " + p.Addr)
	for in.Scan() {
		fmt.Println("child:", p.Stats().AcceptPauses)
	}
}

// A client accepted while the server is cut off is not served on.
func TestAClientThatComesAfterTheEndIsClosed(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		m.Stop()
		began := time.Now()
		m.Client().WantEnd("")
		if d := time.Since(began); d != 0 {
			t.Errorf("closed after %v, want at once", d)
		}
	})
}

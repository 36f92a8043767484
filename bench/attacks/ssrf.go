package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/nameserver"
	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// ssrfAttacks want the proxy to connect, or to look up a name, for a client: only
// the upstream may be dialled.
var ssrfAttacks = []attack{
	{name: "SSRF", conns: 8, bound: atEase + 8*perSlow, why: "8 requests", prepare: ssrf(false)},
	{name: "SSRF by way of a forward proxy", conns: 8, bound: atEase + 8*perSlow, why: "8 requests", prepare: ssrf(true)},
}

// Names of the upstream and of the canaries.
const (
	ownName    = "app.attacks.test"
	canaryName = "canary.attacks.test"
)

// ssrfStage is the upstream by name, the name server, and canaries that nobody may meet.
type ssrfStage struct {
	findings
	*watch
	forward bool
	targets []string // what clients name
	answers atomic.Int64
	refused atomic.Int64
}

func ssrf(forward bool) func(st *stage) error {
	return func(st *stage) error {
		g := &ssrfStage{forward: forward}
		_, port, err := net.SplitHostPort(st.upstream)
		if err != nil {
			return err
		}
		if err := g.canaries(st); err != nil {
			return err
		}
		g.watch = &watch{upstream: st.upstream, findings: &g.findings}
		if err := g.watch.resolve(st, g.targets); err != nil {
			return err
		}
		if g.byName {
			st.upstream = net.JoinHostPort(ownName, port)
		}
		if forward {
			st.env = append(st.env, "RETRYPROXY_FORWARD_PROXY=true")
		}
		requests, more := g.requests(), g.requests2()
		var turn atomic.Int64
		st.strike = func(s *strike) error {
			if n := turn.Add(1); n%4 != 0 {
				return s.ask(s.addr, requests[int(n)%len(requests)], patience, g.hear)
			}
			return s.askByHTTP2(func() ([]string, string) { return more[int(turn.Add(1))%len(more)], "" }, g.hear)
		}
		st.beside, st.judge = g.watch.sockets, g.judge
		return nil
	}
}

// canaries listen where clients want the proxy to connect, and notice each connection.
func (g *ssrfStage) canaries(st *stage) error {
	own, err := process.OwnAddresses(2)
	if err != nil {
		return err
	}
	for _, addr := range append(own, "127.0.0.1:0", "127.0.0.2:0", "[::1]:0") {
		at, err := st.listen(addr, func(nc net.Conn) {
			g.add("the canary at %s was connected to from %s", nc.LocalAddr(), nc.RemoteAddr())
		})
		if err != nil && strings.HasPrefix(addr, "[") {
			continue // no IPv6 here
		}
		if err != nil {
			return err
		}
		g.targets = append(g.targets, at)
		if host, port, _ := net.SplitHostPort(at); host == "127.0.0.1" {
			for _, spelt := range []string{"localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "[::ffff:127.0.0.1]", "[::1%25lo]", "[::1%lo]", "127.0.0.1.", canaryName, "LOCALHOST"} {
				g.targets = append(g.targets, spelt+":"+port)
			}
		}
	}
	g.targets = append(g.targets, "169.254.169.254", "169.254.169.254:80", "[fd00:ec2::254]", "[fe80::1%25eth0]:80", canaryName, canaryName+":0", canaryName+":65536", canaryName+":80:80", canaryName+":", "metadata.google.internal")
	return nil
}

// requests name each target in every place where a proxy may look for one.
func (g *ssrfStage) requests() (all []string) {
	for _, to := range g.targets {
		for _, head := range []string{
			"GET /ok HTTP/1.1\r\nHost: " + to,
			"GET http://" + to + "/ok HTTP/1.1\r\nHost: " + to,
			"GET http://" + to + "/ok HTTP/1.1\r\nHost: bench.test",
			"GET http://" + to + "@" + ownName + "/ok HTTP/1.1\r\nHost: bench.test",
			"GET http://" + ownName + "@" + to + "/ok HTTP/1.1\r\nHost: bench.test",
			"GET http://" + ownName + "#@" + to + "/ok HTTP/1.1\r\nHost: bench.test",
			"GET http://" + ownName + "\\@" + to + "/ok HTTP/1.1\r\nHost: bench.test",
			"GET https://" + to + "/ok HTTP/1.1\r\nHost: " + to,
			"GET ftp://" + to + "/ok HTTP/1.1\r\nHost: " + to,
			"GET //" + to + "/ok HTTP/1.1\r\nHost: bench.test",
			"GET @" + to + "/ok HTTP/1.1\r\nHost: bench.test",
			"GET /http://" + to + "/ok HTTP/1.1\r\nHost: bench.test",
			"CONNECT " + to + " HTTP/1.1\r\nHost: " + to,
			"GET " + to + " HTTP/1.1\r\nHost: " + to,
			"GET /ok HTTP/1.1\r\nHost: bench.test@" + to,
			"GET /ok HTTP/1.1\r\nHost: bench.test\r\nHost: " + to,
			"GET /ok HTTP/1.1\r\nHost: bench.test\r\n" + strings.ReplaceAll("X-Forwarded-Host: %\r\nX-Forwarded-Server: %\r\nX-Host: %\r\nX-Original-Url: http://%/\r\nX-Rewrite-Url: http://%/\r\nForwarded: for=%;host=%;proto=http\r\nX-Forwarded-For: %\r\nX-Real-Ip: %\r\nDestination: http://%/\r\nReferer: http://%/\r\nOrigin: http://%\r\nX-Upstream: %\r\nVia: 1.1 %\r\nProxy: %\r\nContent-Location: http://%/", "%", to),
			"GET /ok HTTP/1.1\r\nHost: bench.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nOrigin: http://" + to,
		} {
			end := "\r\nConnection: close\r\n\r\n"
			if strings.Contains(head, "Connection: upgrade") {
				end = "\r\n\r\n" + "GET /ok HTTP/1.1\r\nHost: bench.test" + end
			}
			all = append(all, head+end)
		}
		for _, status := range []int{301, 302, 303, 307, 308, 300, 305, 201} {
			all = append(all, fmt.Sprintf("GET /moved?%d&http://%s/ HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n", status, to))
		}
	}
	return all
}

// requests2 are those of HTTP/2.
func (g *ssrfStage) requests2() (all [][]string) {
	for _, to := range g.targets {
		all = append(all,
			[]string{":method", "GET", ":scheme", "http", ":authority", to, ":path", "/ok"},
			[]string{":method", "GET", ":scheme", "http", ":authority", "bench.test", ":path", "http://" + to + "/ok"},
			[]string{":method", "GET", ":scheme", "http", ":authority", "bench.test", ":path", "//" + to + "/ok"},
			[]string{":method", "GET", ":scheme", "http://" + to + "/", ":authority", "bench.test", ":path", "/ok"},
			[]string{":method", "GET", ":scheme", "http", ":authority", "bench.test", ":path", "/ok", "host", to},
			[]string{":method", "GET", ":scheme", "http", ":authority", "bench.test", ":path", "/ok", "x-forwarded-host", to, "forwarded", "host=" + to},
			[]string{":method", "GET", ":scheme", "http", ":path", "/ok", "host", to},
			[]string{":method", "CONNECT", ":authority", to},
			[]string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", to, ":path", "/ok"},
		)
	}
	return all
}

// hear judges a response: it is the upstream's, or a refusal. A 502 or 504 would
// say that something else was tried.
func (g *ssrfStage) hear(h *heard) {
	switch {
	case h.asked() == "" && (h.status/100 == 4 || h.status == http.StatusNotImplemented):
		g.refused.Add(1)
	case h.asked() == "":
		g.add("a response %d that is not the upstream's", h.status)
	default:
		g.answers.Add(1)
		g.hearMoved(h)
	}
}

// hearMoved: a redirect is for the client.
func (g *ssrfStage) hearMoved(h *heard) {
	_, question, is := strings.Cut(h.asked(), "/moved?")
	if !is {
		return
	}
	if status, to, _ := strings.Cut(question, "&"); fmt.Sprint(h.status) != status || h.fields.Get("Location") != to {
		g.add("a redirect to %s (%s) came as %d to %s", to, status, h.status, h.fields.Get("Location"))
	}
}

func (g *ssrfStage) judge(*proxy) (string, []string) {
	g.atLeast(20, g.answers.Load(), "answers of the upstream")
	g.atLeast(20, g.refused.Load(), "refusals")
	g.watch.judge()
	return fmt.Sprintf("%d answers of the upstream (redirects passed on), %d refusals; %d connections dialled, all to the upstream; %s; canaries connected to, other names, other answers: %d",
		g.answers.Load(), g.refused.Load(), g.dialled.Load(), g.names(), g.n), g.all()
}

// watch sees what the proxy asks a name server and where it connects.
type watch struct {
	upstream string
	*findings
	byName   bool
	why      string // it is not
	allowed  []string
	lookedUp atomic.Int64
	dialled  atomic.Int64
}

// resolve has the proxy ask a name server here, to which any name is the canary's but the upstream's.
func (w *watch) resolve(st *stage, canaries []string) error {
	dir, err := st.tempDir()
	if err != nil {
		return err
	}
	own, err := process.OwnAddresses(1)
	if err != nil {
		return err
	}
	ip, _, _ := net.SplitHostPort(own[0])
	w.allowed = []string{w.upstream, ip + ":53"}
	by, err := nameserver.Asking(ip, dir)
	if err != nil {
		w.why = err.Error()
		return nil
	}
	c, err := net.ListenPacket("udp", ip+":53")
	if err != nil {
		w.why = err.Error()
		return nil
	}
	st.later(func() { _ = c.Close() })
	go w.answer(c, canaries)
	w.byName, st.by = true, by
	return nil
}

func (w *watch) answer(c net.PacketConn, canaries []string) {
	host, _, _ := net.SplitHostPort(canaries[0])
	canary, own := [4]byte(net.ParseIP(host).To4()), [4]byte{127, 0, 0, 1}
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		reply, name, err := nameserver.Answer(buf[:n], func(name string) [4]byte {
			if name == ownName+"." {
				return own
			}
			return canary
		}, false)
		if err != nil {
			continue
		}
		if name == ownName+"." {
			w.lookedUp.Add(1)
		} else {
			w.add("the name %s was looked up", name)
		}
		_, _ = c.WriteTo(reply, from)
	}
}

// sockets looks every few milliseconds where the proxy's connections lead.
func (w *watch) sockets(ctx context.Context, p *proxy) {
	seen := map[string]bool{}
	for ctx.Err() == nil {
		for _, c := range dialledBy(p) {
			if slices.Contains(w.allowed, c.to) && !seen[c.from] {
				w.dialled.Add(1)
			} else if !slices.Contains(w.allowed, c.to) && !seen[c.to] {
				w.add("a connection to %s", c.to)
				seen[c.to] = true
			}
			seen[c.from] = true
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *watch) judge() {
	w.atLeast(1, w.dialled.Load(), "connections to the upstream seen")
	if w.byName {
		w.atLeast(1, w.lookedUp.Load(), "look-ups of the upstream's name seen")
	}
}

func (w *watch) names() string {
	if !w.byName {
		return "names not watched (" + w.why + ")"
	}
	return fmt.Sprintf("%d names looked up, all the upstream's", w.lookedUp.Load())
}

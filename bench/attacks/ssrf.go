package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
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

func ssrf(forward bool) func(st *stage) error {
	return func(st *stage) error {
		upstream := strings.TrimPrefix(st.spec.Upstream, "http://")
		targets, err := st.canaries()
		if err != nil {
			return err
		}
		w := &watch{stage: st, upstream: upstream}
		if err := w.resolve(targets[0]); err != nil {
			return err
		}
		if w.why == "" {
			st.spec.Upstream = "http://" + ownName + ":" + portOf(upstream)
		}
		if forward {
			st.set("RETRYPROXY_POSITION=outbound")
		}
		request, fields := inTurn(named(targets)), inTurn(named2(targets))
		st.strike = func(s *strike) error {
			if rand.IntN(4) > 0 {
				return s.ask(s.addr, request(), patience, st.hearNamed)
			}
			return s.askByHTTP2(func() ([]string, string) { return fields(), "" }, st.hearNamed)
		}
		st.beside, st.judge, st.needs = w.sockets, w.judge, needs{answers: 20, refusals: 20, dialled: 1}
		if w.why == "" {
			st.needs[lookedUp] = 1
		}
		return nil
	}
}

// canaries listen where clients want the proxy to connect, and notice each connection. They return what clients name.
func (st *stage) canaries() (targets []string, err error) {
	own, err := rig.OwnAddresses(2)
	if err != nil {
		return nil, err
	}
	for _, addr := range append(own, "127.0.0.1:0", "127.0.0.2:0", "[::1]:0") {
		at, err := st.Listen(addr, func(nc net.Conn) {
			st.Add("the canary at %s was connected to from %s", nc.LocalAddr(), nc.RemoteAddr())
		})
		if err != nil && strings.HasPrefix(addr, "[") {
			continue // no IPv6 here
		}
		if err != nil {
			return nil, err
		}
		targets = append(targets, at)
		if host, port, _ := net.SplitHostPort(at); host == "127.0.0.1" {
			for _, spelt := range []string{"localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "[::ffff:127.0.0.1]", "[::1%25lo]", "[::1%lo]", "127.0.0.1.", canaryName, "LOCALHOST"} {
				targets = append(targets, spelt+":"+port)
			}
		}
	}
	return append(targets, "169.254.169.254", "169.254.169.254:80", "[fd00:ec2::254]", "[fe80::1%25eth0]:80", canaryName, canaryName+":0", canaryName+":65536", canaryName+":80:80", canaryName+":", "metadata.google.internal"), nil
}

// named are requests with each target in every place where a proxy may look for one.
func named(targets []string) (all []string) {
	for _, to := range targets {
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

// named2 are those of HTTP/2.
func named2(targets []string) (all [][]string) {
	for _, to := range targets {
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

// What is counted.
const (
	answers  = "answers of the upstream"
	refusals = "refusals"
	dialled  = "connections to the upstream seen"
	lookedUp = "look-ups of the upstream's name seen"
)

// hearNamed judges a response: it is the upstream's, or a refusal. A 502 or 504 would
// say that something else was tried. A redirect is for the client.
func (st *stage) hearNamed(h *http.Response) {
	switch {
	case asked(h) == "" && (h.StatusCode/100 == 4 || h.StatusCode == http.StatusNotImplemented):
		st.Count(refusals, 1)
	case asked(h) == "":
		st.Add("a response %d that is not the upstream's", h.StatusCode)
	default:
		st.Count(answers, 1)
		_, question, is := strings.Cut(asked(h), "/moved?")
		if status, to, _ := strings.Cut(question, "&"); is && (fmt.Sprint(h.StatusCode) != status || h.Header.Get("Location") != to) {
			st.Add("a redirect to %s (%s) came as %d to %s", to, status, h.StatusCode, h.Header.Get("Location"))
		}
	}
}

// watch sees what the proxy asks a name server and where it connects.
type watch struct {
	*stage
	upstream string
	why      string // names are not watched; "": they are
	allowed  []string
}

// resolve has the proxy ask a name server here, to which any name is the canary's but the upstream's.
func (w *watch) resolve(canary string) error {
	dir, err := w.TempDir()
	if err != nil {
		return err
	}
	own, err := rig.OwnAddresses(1)
	if err != nil {
		return err
	}
	ip, _, _ := net.SplitHostPort(own[0])
	host, _, _ := net.SplitHostPort(canary)
	w.allowed = []string{w.upstream, ip + ":53"}
	by, err := w.NameServer(ip, dir, func(name string) rig.Answer {
		if name == ownName+"." {
			w.Count(lookedUp, 1)
			return rig.Answer{IP: "127.0.0.1"}
		}
		w.Add("a name was looked up: %s", name)
		return rig.Answer{IP: host}
	})
	if err != nil {
		w.why = err.Error()
		return nil
	}
	w.spec.By = by
	return nil
}

// sockets looks every few milliseconds where the proxy's connections lead.
func (w *watch) sockets(ctx context.Context, p *rig.Proxy) {
	seen := map[string]bool{}
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		for _, c := range dialledBy(p) {
			if slices.Contains(w.allowed, c.to) && !seen[c.from] {
				w.Count(dialled, 1)
			} else if !slices.Contains(w.allowed, c.to) && !seen[c.to] {
				w.Add("a connection to %s", c.to)
				seen[c.to] = true
			}
			seen[c.from] = true
		}
	}
}

func (w *watch) judge(*rig.Proxy) string {
	names := "names not watched (" + w.why + ")"
	if w.why == "" {
		names = fmt.Sprintf("%d names looked up, all the upstream's", w.Counted(lookedUp))
	}
	return fmt.Sprintf("%d answers of the upstream (redirects passed on), %d refusals; %d connections dialled, all to the upstream; %s; canaries connected to, other names, other answers: %d",
		w.Counted(answers), w.Counted(refusals), w.Counted(dialled), names, w.N())
}

// connection is one of the proxy's own making.
type connection struct{ from, to string }

// listening is the state of a socket that listens, in /proc/net/tcp.
const listening = "0A"

// dialledBy are the connections of TCP that the process has dialled and not closed yet.
func dialledBy(p *rig.Proxy) (all []connection) {
	mine := socketsOf(p.PID())
	ports := []string{portOf(p.Addr), portOf(p.Admin)}
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", p.PID(), table))
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			fields := strings.Fields(sc.Text())
			if len(fields) < 10 || fields[3] == listening || !mine[fields[9]] {
				continue
			}
			c := connection{addressOf(fields[1]), addressOf(fields[2])}
			if !slices.Contains(ports, portOf(c.from)) { // those are clients'
				all = append(all, c)
			}
		}
		_ = f.Close()
	}
	return all
}

// socketsOf are the inodes of a process's sockets.
func socketsOf(pid int) map[string]bool {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	open, _ := os.ReadDir(dir)
	all := map[string]bool{}
	for _, e := range open {
		to, _ := os.Readlink(dir + e.Name())
		if inode, is := strings.CutPrefix(to, "socket:["); is {
			all[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return all
}

// addressOf reads an address of /proc/net/tcp: words of 32 bits in the machine's own order, and a port.
func addressOf(text string) string {
	words, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return text
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String()
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// ssrfAttacks want the proxy to connect, or to look up a name, for a client: only
// the upstream may be dialled.
var ssrfAttacks = []attack{
	{name: "SSRF", conns: 8, bound: baseMemory + 8*perSlow, why: "8 requests", prepare: ssrf(false)},
	{name: "SSRF by way of a forward proxy", conns: 8, bound: baseMemory + 8*perSlow, why: "8 requests", prepare: ssrf(true)},
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
		why := st.resolve(targets[0])
		st.needs = needs{answers: 20, refusals: 20}
		if why == "" {
			st.spec.Upstream = "http://" + ownName + ":" + portOf(upstream)
			st.needs[lookedUp] = 1
		}
		if forward {
			st.set("RETRYPROXY_POSITION=outbound")
		}
		request, fields := inTurn(named(targets)), inTurn(named2(targets))
		st.connection = func(s *attacker) error {
			if rand.IntN(4) > 0 {
				return s.ask(s.addr, request(), patience, st.judgeNamed)
			}
			return s.askByHTTP2(func() ([]string, string) { return fields(), "" }, st.judgeNamed)
		}
		st.judge = func(*rig.Proxy) string {
			names := "names not watched (" + why + ")"
			if why == "" {
				names = fmt.Sprintf("%d names looked up, all the upstream's", st.Counted(lookedUp))
			}
			return fmt.Sprintf("%d answers of the upstream (redirects passed on), %d refusals; %s; canaries connected to, other names, other answers: %d",
				st.Counted(answers), st.Counted(refusals), names, st.N())
		}
		return nil
	}
}

// canaries listens where clients want the proxy to connect; each connection is a finding. It returns the targets
// that clients name.
func (st *stage) canaries() (targets []string, err error) {
	own := rig.OwnAddresses(2)
	may := []string{"[::1]:0", hostOf(own[0]) + ":80", hostOf(own[0]) + ":443"} // without IPv6, or without root, one may not
	for _, addr := range slices.Concat(own, []string{"127.0.0.1:0", "127.0.0.2:0"}, may) {
		at, err := st.Listen(addr, func(nc net.Conn) {
			st.Add("the canary at %s was connected to from %s", nc.LocalAddr(), nc.RemoteAddr())
		})
		if err != nil && slices.Contains(may, addr) {
			continue
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
	return append(targets, hostOf(own[0]), "169.254.169.254", "169.254.169.254:80", "[fd00:ec2::254]", "[fe80::1%25eth0]:80", canaryName, canaryName+":0", canaryName+":65536", canaryName+":80:80", canaryName+":", "metadata.google.internal"), nil
}

// named returns requests with each target in every place where a proxy may look for one.
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

// named2 returns the same for HTTP/2, as headers.
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
	lookedUp = "look-ups of the upstream's name seen"
)

// judgeNamed judges a response. It must be the upstream's, or a refusal: a 502 or 504 would mean that the
// proxy tried to connect elsewhere. Redirects must be forwarded to the client.
func (st *stage) judgeNamed(h *http.Response) {
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

// resolve starts a name server for the proxy. It resolves every name except the upstream's to the canary. If
// the machine cannot do so, why is the reason.
func (st *stage) resolve(canary string) (why string) {
	var err error
	st.spec.By, err = st.NameServer(hostOf(rig.OwnAddresses(1)[0]), func(name string) rig.Answer {
		if name == ownName+"." {
			st.Count(lookedUp, 1)
			return rig.Answer{IP: "127.0.0.1"}
		}
		st.Add("a name was looked up: %s", name)
		return rig.Answer{IP: hostOf(canary)}
	})
	if err != nil {
		return err.Error()
	}
	return ""
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

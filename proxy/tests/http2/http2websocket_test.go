package http2

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func echo(w *peers.WebSocket, s string) {
	w.T.Helper()
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(w.To, s); sent <- err }()
	got := make([]byte, len(s))
	if _, err := io.ReadFull(w.From, got); err != nil || string(got) != s {
		w.T.Fatalf("%d bytes came back, %v", len(got), err)
	}
	if err := peers.Within(w.T, "the bytes to be taken", sent); err != nil {
		w.T.Fatal(err)
	}
}

func echoing(before ...string) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		for _, s := range before {
			c.Head()
			c.Say("%s", s)
		}
		if c.Head() == "" {
			return
		}
		c.Say("%s", peers.Switching101)
		_, _ = io.Copy(c.Conn, c.Reader)
	}
}

func TestWebSocketOverHTTP2(t *testing.T) {
	u := peers.StartUpstream(t, echoing())
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	w := p.OpenWebSocket(t, "websocket")
	if w.Res.StatusCode != 200 || w.Res.Header.Get("Sec-Websocket-Accept") != "" || w.Res.Header.Get("Upgrade") != "" {
		t.Errorf("%d %v", w.Res.StatusCode, w.Res.Header)
	}
	for _, s := range []string{"\x81\x05hello", "GET / HTTP/1.1\r\n\r\n", "0\r\n\r\n", strings.Repeat("\x00", 300_000)} {
		echo(w, s)
	}
	w.To.Close() // the echo ends with it
	if rest, err := io.ReadAll(w.From); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v at the end", rest, err)
	}
	p.WantOutcome(0, policy.OutcomeUpgraded)
	headers := u.Head(0)
	if !strings.HasPrefix(headers, "GET /chat?room=1 HTTP/1.1\r\nHost: "+p.Addr+"\r\n") || strings.Contains(headers, "protocol") ||
		strings.Contains(headers, "Transfer-Encoding") || strings.Contains(headers, "not for") ||
		!strings.Contains(headers, "Origin: http://a\r\n") || !strings.Contains(headers, "Upgrade: websocket\r\n") {
		t.Errorf("upstream got %q", headers)
	}
	_, key, _ := strings.Cut(headers, "Sec-WebSocket-Key: ")
	key, _, _ = strings.Cut(key, "\r\n")
	if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != 16 {
		t.Errorf("key %q of %d bytes, %v", key, len(b), err)
	}
}

func TestAWebSocketOverHTTP2ThatIsRefusedIsRetried(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, echoing(peers.Bad503)), peers.SpeakHTTP2)
	w := p.OpenWebSocket(t, "websocket")
	echo(w, "after the second handshake")
	w.To.Close()
	_, _ = io.ReadAll(w.From)
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeUpgraded || p.Seen.Retried() != 1 {
		t.Errorf("outcome %v after %d retries", o, p.Seen.Retried())
	}
}

// The upstream's end is told as the stream's, not as a reset.
func TestAWebSocketOverHTTP2EndsWithTheUpstreams(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("%s", peers.Switching101+"bye")
	})
	w := proxytest.Start(t, u, peers.SpeakHTTP2).OpenWebSocket(t, "websocket")
	if got, err := io.ReadAll(w.From); err != nil || string(got) != "bye" {
		t.Errorf("%q, %v", got, err)
	}
}

// Each side may end its half of a WebSocket and still gets what the other one sends.
func TestAWebSocketOverHTTP2EndsOneWayAtATime(t *testing.T) {
	for _, clientFirst := range []bool{true, false} {
		heard := make(chan string, 1)
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say("%s", peers.Switching101)
			hear := func() {
				b, err := io.ReadAll(c.Reader)
				heard <- fmt.Sprintf("%s, %v", b, err)
			}
			if clientFirst {
				hear()
			}
			c.Say("from the upstream")
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			if !clientFirst {
				hear()
			}
		})
		w := proxytest.Start(t, u, peers.SpeakHTTP2).OpenWebSocket(t, "websocket")
		send := func() {
			t.Helper()
			_, err := io.WriteString(w.To, "from the client")
			w.To.Close()
			if got := peers.Within(t, "the client's bytes", heard); err != nil || got != "from the client, <nil>" {
				t.Errorf("client first: %v; the upstream got %q; %v", clientFirst, got, err)
			}
		}
		if clientFirst {
			send()
		}
		if got, err := io.ReadAll(w.From); err != nil || string(got) != "from the upstream" {
			t.Errorf("client first: %v; the client got %q, %v", clientFirst, got, err)
		}
		if !clientFirst {
			send()
		}
	}
}

func TestAWebSocketOverHTTP2ThatBreaksLooksBroken(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("%s", peers.Switching101)
		c.Body(1)
		c.Reset()
	})
	w := proxytest.Start(t, u, peers.SpeakHTTP2).OpenWebSocket(t, "websocket")
	if _, err := w.To.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(w.From); err == nil {
		t.Errorf("%q and an orderly end", got)
	}
}

func TestARefusedWebSocketDoesNotLookOpen(t *testing.T) {
	for _, c := range []struct {
		name, protocol, answer string
		status, sends          int
	}{
		{"the upstream's no", "websocket", "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403, 1},
		{"a response as if nothing had been asked for", "websocket", peers.OK200, 502, 1},
		{"another protocol", "connect-udp", peers.OK200, 501, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(c.answer))
			w := proxytest.Start(t, u, peers.SpeakHTTP2).OpenWebSocket(t, c.protocol)
			if w.Res.StatusCode != c.status || u.Sends() != c.sends {
				t.Errorf("%d after %d sends, want %d after %d", w.Res.StatusCode, u.Sends(), c.status, c.sends)
			}
		})
	}
}

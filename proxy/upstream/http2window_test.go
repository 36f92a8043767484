package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// http2Upstream serves HTTP/2 without TLS.
func http2Upstream(t *testing.T, h http.HandlerFunc) Target {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return Target{Network: "tcp", Address: s.Listener.Addr().String(), Protocol: HTTP2}
}

// request sends a GET on a connection from p.
func request(t *testing.T, p *Pool, path string) *Conn {
	t.Helper()
	return begin(t, p, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
}

// post sends the headers of a POST with a body of size bytes.
func post(t *testing.T, p *Pool, path string, size int) *Conn {
	t.Helper()
	return begin(t, p, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", path, size))
}

func begin(t *testing.T, p *Pool, headers string) *Conn {
	t.Helper()
	c, err := p.Get(t.Context(), GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := beginText(c, headers); err != nil {
		t.Fatal(err)
	}
	return c
}

// Responses that nobody reads each fill their own window, and take nothing from the other responses
// of the connection.
func TestUnreadResponsesDoNotStopOthers(t *testing.T) {
	const unread = 8
	var sent atomic.Int64
	p := makePool(t, http2Upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/small" {
			_, _ = io.WriteString(w, "hello")
			return
		}
		piece := make([]byte, 32<<10)
		for {
			n, err := w.Write(piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}), Options{})
	for range unread {
		request(t, p, "/endless")
	}
	for began := time.Now(); sent.Load() < unread*DefaultStreamWindow; time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d bytes were sent, want %d", sent.Load(), unread*DefaultStreamWindow)
		}
	}
	res, err := readText(request(t, p, "/small"))
	if err != nil {
		t.Fatal(err)
	}
	if res != "hello" {
		t.Errorf("%q", res)
	}
	if n := p.Stats().Dials; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// Request bodies that the upstream does not read use up its window of the connection. Other requests
// get another connection.
func TestUnreadUploadsDoNotStopOthers(t *testing.T) {
	p := makePool(t, http2Upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			<-r.Context().Done()
			return
		}
		_, _ = io.Copy(w, r.Body)
	}), Options{})
	for range 2 {
		c := post(t, p, "/stuck", 1<<40)
		go func() {
			for err := error(nil); err == nil; {
				_, err = c.Write(make([]byte, 32<<10))
			}
		}()
	}
	first := (*p.http2.conns.Load())[0]
	for began := time.Now(); first.HasRoom(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the uploads are not stuck")
		}
	}
	c := post(t, p, "/echo", 5)
	_, _ = c.SendBody([][]byte{[]byte("hello")}, true, nil)
	res, err := readText(c)
	if err != nil {
		t.Fatal(err)
	}
	if res != "hello" {
		t.Errorf("%q", res)
	}
}

// beginText sends the headers of a request that is written as HTTP/1.1.
func beginText(c *Conn, text string) (int, error) {
	var r http1.Request
	if _, err := r.Parse([]byte(text), http1.Limits{}); err != nil {
		return 0, err
	}
	fields := wire.AppendFraming(wire.Block, nil, r.Body)
	head := wire.Head{Form: wire.Block, Fields: fields, Method: r.Method, Target: r.Target, Authority: r.Authority}
	return c.Begin(&head, [][]byte{fields}, r.Body.Empty(), nil)
}

// readText returns the body of a response.
func readText(c *Conn) (string, error) {
	_, begin, err := readStatus(c)
	if err != nil {
		return "", err
	}
	rest, err := io.ReadAll(c)
	return string(begin) + string(rest), err
}

//go:build linux

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestWhatAClientHadIsToldApart asks servers that response each request in one way.
func TestWhatAClientHadIsToldApart(t *testing.T) {
	const id = "00000001" // of the first request
	good := byLength.render(id)
	for name, tc := range map[string]struct {
		answer []byte
		want   verdict
	}{
		"the right answer":              {good, served},
		"in chunks":                     {byChunks.render(id), served},
		"to its close":                  {byClose.render(id), served},
		"another status":                {[]byte("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), failed},
		"nothing":                       {nil, lost},
		"a part of the head":            {good[:20], cut},
		"a part of the body":            {good[:len(good)-1], cut},
		"chunks without an end":         {byChunks.render(id)[:len(byChunks.render(id))-2], cut},
		"another status, cut":           {[]byte("HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n"), cut},
		"somebody else's answer":        {byLength.render("00000002"), changed},
		"somebody else's answer, cut":   {byLength.render("00000002")[:len(good)-1], changed},
		"less that looks whole":         {byClose.render(id)[:len(byClose.render(id))-1], changed},
		"no HTTP":                       {[]byte("what?\r\n\r\n"), changed},
		"half, as the upstream says":    {half(id), served},
		"a quarter, announced as half":  {[]byte(fmt.Sprintf("HTTP/1.1 200 OK\r\n%s: 1\r\nContent-Length: 5\r\n\r\n%s", fieldShort, id[:5])), changed},
		"status 200 and nothing behind": {[]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), changed},
	} {
		c := &client{clients: &clients{network: "tcp", addr: oneAnswer(t, tc.answer), open: map[string]time.Time{}}, requestKind: requestKind{method: "PUT"}}
		c.ask()
		if e := c.events[0]; e.verdict != tc.want || len(c.open) != 0 {
			t.Errorf("%s: verdict %d (%s), want %d", name, e.verdict, e.what, tc.want)
		}
		c.disconnect()
	}
	c := &client{clients: &clients{network: "tcp", addr: "127.0.0.1:1", open: map[string]time.Time{}}, requestKind: requestKind{method: "GET"}}
	if c.ask(); c.events[0].verdict != failed {
		t.Errorf("no connection: verdict %d, want %d", c.events[0].verdict, failed)
	}
}

func half(id string) []byte {
	body := goodBody(id)
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n%s: 1\r\nContent-Length: %d\r\n\r\n%s", fieldShort, len(body)/2, body[:len(body)/2])
}

// oneAnswer reads a request, answers, and closes.
func oneAnswer(t *testing.T, answer []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		q, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		x := &exchange{q: q, id: q.Header.Get(fieldID)}
		if err := x.read(); err == nil && x.id == "00000001" {
			_, _ = c.Write(answer)
		}
	}()
	return l.Addr().String()
}

func TestABodyThatChangedIsFoundOut(t *testing.T) {
	q, err := http.NewRequest("PUT", "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(fieldSum, sum([]byte("what was sent")))
	x := &exchange{q: q, id: "00000001"}
	if err := x.read(); err != nil || x.id == "00000001" {
		t.Errorf("%v, answered as %q", err, x.id)
	}
}

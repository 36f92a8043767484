package http2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func options(serve func(*textStream)) *Options {
	return &Options{Streams: 100, Limits: Limits{ReadAhead: ReadAhead{Window: 64 << 10}, HeaderBytes: 64 << 10, HeaderTimeout: 10 * time.Second, PingAfter: 30 * time.Second, WriteTimeout: 10 * time.Second}, Serve: func(s *Stream) { serve(newTextStream(s)) }, Workers: &Workers{}}
}

// serveOn accepts connections on loopback and returns their address.
func serveOn(t *testing.T, o *Options) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { NewConn(nc, o).Run(); _ = nc.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func transport(t *testing.T) *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// readHead reads the request's headers.
func readHead(s *textStream) (string, error) {
	var head []byte
	var b [1]byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if _, err := s.Read(b[:]); err != nil {
			return "", err
		}
		head = append(head, b[0])
	}
	return string(head), nil
}

func TestRequestsAreServed(t *testing.T) {
	addr := serveOn(t, options(func(s *textStream) {
		head, err := readHead(s)
		if err != nil {
			return
		}
		line, _, _ := strings.Cut(head, "\r\n")
		fmt.Fprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-A: b\r\n\r\n%s", len(line), line)
	}))
	c := http.Client{Transport: transport(t)}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			res, err := c.Get(fmt.Sprintf("http://%s/%d", addr, i))
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(res.Body)
			if want := fmt.Sprintf("GET /%d HTTP/1.1", i); string(body) != want || err != nil || res.Header.Get("X-A") != "b" {
				t.Errorf("%q %v", body, err)
			}
		})
	}
	all.Wait()
}

func TestBodiesPassBothWays(t *testing.T) {
	addr := serveOn(t, options(func(s *textStream) {
		if _, err := readHead(s); err != nil {
			return
		}
		fmt.Fprint(s, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		buf := make([]byte, 4096)
		for {
			n, err := s.Read(buf)
			if _, werr := s.Write(buf[:n]); err != nil || werr != nil || s.ResponseComplete() {
				return
			}
		}
	}))
	c := http.Client{Transport: transport(t)}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	res, err := c.Post("http://"+addr+"/", "text/plain", io.MultiReader(bytes.NewReader(sent)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes: %v", len(got), len(sent), err)
	}
}

// The preface, and what comes behind it, may come byte by byte.
func TestThePrefaceMayComeInPieces(t *testing.T) {
	near, far := newPipe(t)
	ended := make(chan struct{})
	o := options(echo)
	go func() { NewConn(far, o).Run(); _ = far.Close(); close(ended) }()
	p := newPeer(t, near)
	go p.read()
	for i := range len(Preface) {
		_, _ = io.WriteString(near, Preface[i:i+1])
	}
	_ = p.WriteSettings()
	p.begin(true, getFields...)
	p.want(`1: "`)
	_ = near.Close()
	<-ended
	o.Workers.Close()
}

package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// recorder is the proxy's upstream. It keeps the bytes of each connection as
// they came, and answers as net/http reads them.
type recorder struct {
	net.Listener
	served sync.WaitGroup

	mu   sync.Mutex // guards what follows
	open map[net.Conn]struct{}
	kept [][]byte // of connections that ended
}

func newRecorder() (*recorder, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &recorder{Listener: l, open: map[net.Conn]struct{}{}}
	go k.accept()
	return k, nil
}

func (k *recorder) accept() {
	for n := 0; ; n++ {
		c, err := k.Accept()
		if err != nil {
			return
		}
		k.mu.Lock()
		k.open[c] = struct{}{}
		k.served.Add(1)
		k.mu.Unlock()
		go k.serve(c, 1+n%7)
	}
}

// serve answers up to most requests on a connection.
func (k *recorder) serve(c net.Conn, most int) {
	defer k.served.Done()
	var all bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &all))
	for n := 1; n <= most; n++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			break
		}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			break
		}
		ends := ""
		if n == most {
			ends = "Connection: close\r\n"
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"+ends+"Content-Length: 0\r\n\r\n"); err != nil {
			break
		}
	}
	// What comes unasked for is of interest too.
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, _ = io.Copy(io.Discard, r)
	c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, c)
	if all.Len() > 0 {
		k.kept = append(k.kept, all.Bytes())
	}
}

// flush ends all connections and gives what came over them.
func (k *recorder) flush() [][]byte {
	k.mu.Lock()
	for c := range k.open {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // the proxy may be writing
	}
	k.mu.Unlock()
	k.served.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.kept
	k.kept = nil
	return kept
}

package testbed

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Patient is a connection each of whose reads may take as long as Quiet.
type Patient struct {
	net.Conn
	Quiet time.Duration
}

func (p *Patient) Read(b []byte) (int, error) {
	_ = p.SetReadDeadline(time.Now().Add(p.Quiet))
	return p.Conn.Read(b)
}

// mostQuiet is how long Exchange waits for the end, after its own.
const mostQuiet = 20 * time.Second

// Exchange sends raw on a connection of its own and returns all that comes back. If the other side is quiet for so
// long, it ends its own side: whoever waits for the rest of a body then has it. port is that of its own.
func Exchange(addr string, raw []byte, quiet time.Duration) (all []byte, port string, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, "", err
	}
	_, port, _ = net.SplitHostPort(c.LocalAddr().String())
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = c.Write(raw) }()
	defer func() { _ = c.Close(); <-sent }()
	in := &Patient{c, quiet}
	for {
		more, err := io.ReadAll(in)
		all = append(all, more...)
		if errors.Is(err, os.ErrDeadlineExceeded) && in.Quiet != mostQuiet {
			_ = c.(*net.TCPConn).CloseWrite()
			in.Quiet = mostQuiet
			continue
		}
		if op := (*net.OpError)(nil); errors.As(err, &op) && !op.Timeout() {
			err = nil // whoever refuses a request may close with bytes unread
		}
		return all, port, err
	}
}

// Statuses reads the final statuses of the responses to requests with these methods, and after them to GET.
func Statuses(responses []byte, methods ...string) (all []int) {
	r := bufio.NewReader(bytes.NewReader(responses))
	for {
		method := http.MethodGet
		if len(all) < len(methods) {
			method = methods[len(all)]
		}
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return all
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode >= 200 {
			all = append(all, res.StatusCode)
		}
	}
}

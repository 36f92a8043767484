//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// roleUpstream serves what is behind the proxy. Orders, a line each, answered by
// "done" and the number of requests and connections that a fault has met:
//
//	mode NAME   how requests are answered from now on; see conducts
//	deaf        accept no more, and hold a connection or two in the queue
//	hear        accept again
//	drop        reset all connections
//	cert FILE   speak TLS with the certificate and the key in this file
//	count       nothing
//	waits       nothing; the number is that of the waits that were wrong
const roleUpstream = "upstream"

// server is the upstream's process.
type server struct {
	l       *net.TCPListener
	conduct atomic.Pointer[conduct]
	cert    atomic.Pointer[tls.Certificate] // nil: no TLS
	met     atomic.Int64                    // answers that a fault has met
	nth     atomic.Int64                    // of the responses of a conduct
	waits   waits

	mu    sync.Mutex // guards all below
	deaf  bool
	hear  *sync.Cond
	conns map[net.Conn]struct{}
}

func serveUpstream(args []string, orders io.Reader, out io.Writer) error {
	f := flag.NewFlagSet(roleUpstream, flag.ContinueOnError)
	listen := f.String("listen", "", "address")
	cert := f.String("cert", "", "file with a certificate and its key")
	if err := f.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	s := &server{l: l.(*net.TCPListener), conns: map[net.Conn]struct{}{}}
	s.hear = sync.NewCond(&s.mu)
	s.setConduct(wellBehaved)
	if *cert != "" {
		if err := s.setCert(*cert); err != nil {
			return err
		}
	}
	go s.accept()
	fmt.Fprintln(out, "open")
	return obey(orders, out, s.order)
}

// obey carries out orders until there are no more; each is answered.
func obey(orders io.Reader, out io.Writer, order func(what, arg string) (int64, error)) error {
	in := bufio.NewScanner(orders)
	for in.Scan() {
		what, arg, _ := strings.Cut(in.Text(), " ")
		n, err := order(what, arg)
		if err != nil {
			return fmt.Errorf("order %q: %w", in.Text(), err)
		}
		fmt.Fprintln(out, "done", n)
	}
	return in.Err()
}

func (s *server) order(what, arg string) (int64, error) {
	var err error
	switch what {
	case "mode":
		err = s.setConduct(arg)
	case "deaf":
		err = s.setDeaf(true)
	case "hear":
		err = s.setDeaf(false)
	case "drop":
		s.drop()
	case "cert":
		err = s.setCert(arg)
	case "count":
	case "waits":
		return s.waits.judged()
	default:
		err = errors.New("unknown")
	}
	return s.met.Load(), err
}

func (s *server) setConduct(name string) error {
	c, ok := conducts[name]
	if !ok {
		return errors.New("no such conduct")
	}
	s.nth.Store(0)
	s.conduct.Store(&c)
	return nil
}

func (s *server) setCert(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c, err := tls.X509KeyPair(b, b)
	if err == nil {
		s.cert.Store(&c)
	}
	return err
}

// backlog is how many connections beside one the queue of a deaf server takes.
const backlog = 1

// setDeaf ends what there is and leaves further connections in a short queue, or takes them again.
func (s *server) setDeaf(deaf bool) error {
	s.mu.Lock()
	s.deaf = deaf
	s.hear.Broadcast()
	s.mu.Unlock()
	if !deaf {
		return s.resize(4096)
	}
	if err := s.l.SetDeadline(time.Unix(1, 0)); err != nil { // wakes Accept
		return err
	}
	s.drop()
	return s.resize(backlog)
}

// resize sets how many connections may wait to be accepted: listen(2) may be called again for that.
func (s *server) resize(n int) error {
	raw, err := s.l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), n) })
	return errors.Join(err, failed)
}

func (s *server) accept() {
	for {
		s.mu.Lock()
		for s.deaf {
			s.hear.Wait()
			_ = s.l.SetDeadline(time.Time{})
		}
		s.mu.Unlock()
		c, err := s.l.Accept()
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		go s.serve(c)
	}
}

// drop resets all connections.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		reset(c)
		s.met.Add(1)
	}
}

func reset(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// errEnded: the connection is over.
var errEnded = errors.New("ended")

func (s *server) serve(plain net.Conn) {
	c := plain
	if cert := s.cert.Load(); cert != nil {
		c = tls.Server(plain, &tls.Config{Certificates: []tls.Certificate{*cert}})
	}
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, plain)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		x := &exchange{s: s, c: c, q: q, id: q.Header.Get(fieldID), first: q.Header.Get("X-Retryproxy-Attempt") == "1"}
		if wait, err := time.ParseDuration(q.Header.Get(fieldWait)); err == nil {
			time.Sleep(wait)
		}
		if (*s.conduct.Load())(x) != nil {
			return
		}
	}
}

//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// upstream is the upstream process, which obeys orders.
type upstream struct{ *rig.Worker }

// roleUpstream is that process's role.
const roleUpstream = "faults upstream"

func init() { rig.Role(roleUpstream, serveUpstream) }

// startUpstream starts the upstream and waits until it listens.
func (st *stage) startUpstream() error {
	scheme, _, _ := strings.Cut(st.spec.Upstream, ":")
	w, err := st.StartRole(roleUpstream, st.upBy, nil, st.upAddr, st.cert, scheme)
	st.up = &upstream{w}
	return err
}

// order sends an order and returns the answer, a number.
func (u *upstream) order(line string) (n int64, err error) {
	answer, err := u.Order("%s", line)
	if err == nil {
		n, err = strconv.ParseInt(answer, 10, 64)
	}
	return n, err
}

// server is the upstream in its process.
type server struct {
	rig.Server
	l        *net.TCPListener
	behavior atomic.Pointer[behavior]
	cert     atomic.Pointer[tls.Certificate] // nil: no TLS
	affected atomic.Int64                    // requests and connections that the fault affected
	nth      atomic.Int64                    // counts the responses of a behavior
}

// serveUpstream is the role of the upstream. args are its address, a file with a certificate and its key, or
// "", and the scheme of its URL. With h2c, every request gets a good response over HTTP/2. The answer to an
// order is the number of requests and connections that the fault affected. The orders are:
//
//	mode NAME   the behavior from now on; see behaviors
//	deaf        stop accepting, with a queue of one connection or two
//	hear        accept again
//	drop        reset all connections
//	cert FILE   use TLS with the certificate and the key in this file
//	count       nothing
func serveUpstream(args []string) (func(order string) (string, error), error) {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return nil, err
	}
	s := &server{l: l.(*net.TCPListener)}
	s.Take = s.serve
	if err = s.obey("mode " + good); err == nil && args[1] != "" {
		err = s.obey("cert " + args[1])
	}
	if args[2] == "h2c" {
		go goodByHTTP2(l)
	} else {
		go s.Accept(l)
	}
	return func(order string) (string, error) {
		err := s.obey(order)
		return fmt.Sprint(s.affected.Load()), err
	}, err
}

// goodByHTTP2 is the behavior good over HTTP/2.
func goodByHTTP2(l net.Listener) {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	_ = (&http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if x := newExchange(nil, nil, q); x.read() == nil {
			_, _ = io.WriteString(w, goodBody(x.id))
		}
	})}).Serve(l)
}

// newExchange waits first if the client wants it.
func newExchange(s *server, c net.Conn, q *http.Request) *exchange {
	if wait, err := time.ParseDuration(q.Header.Get(fieldWait)); err == nil {
		time.Sleep(wait)
	}
	return &exchange{s: s, c: c, q: q, id: q.Header.Get(fieldID), first: q.Header.Get("X-Retryproxy-Attempt") == "1"}
}

func (s *server) obey(line string) error {
	what, arg, _ := strings.Cut(line, " ")
	switch what {
	case "mode":
		c, ok := behaviors[arg]
		if !ok {
			return errors.New("no such behavior")
		}
		s.nth.Store(0)
		s.behavior.Store(&c)
	case "deaf":
		if err := s.l.SetDeadline(time.Unix(1, 0)); err != nil { // ends Accept
			return err
		}
		s.drop()
		return s.resize(1)
	case "hear":
		if err := s.l.SetDeadline(time.Time{}); err != nil {
			return err
		}
		go s.Accept(s.l)
		return s.resize(4096)
	case "drop":
		s.drop()
	case "cert":
		c, err := tls.LoadX509KeyPair(arg, arg)
		if err != nil {
			return err
		}
		s.cert.Store(&c)
	case "count":
	default:
		return errors.New("unknown")
	}
	return nil
}

// resize changes the backlog of the listening socket by calling listen(2) again.
func (s *server) resize(n int) error {
	raw, err := s.l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), n) })
	return errors.Join(err, failed)
}

// drop resets all connections.
func (s *server) drop() { s.affected.Add(int64(s.Each(rig.Reset))) }

func (s *server) serve(c net.Conn) {
	if cert := s.cert.Load(); cert != nil {
		c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}})
		defer c.Close()
	}
	in := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		x := newExchange(s, c, q)
		how := s.behavior.Load()
		if how.affected {
			s.affected.Add(1)
		}
		if !how.early && x.read() != nil || how.answer(x) != nil {
			return
		}
	}
}

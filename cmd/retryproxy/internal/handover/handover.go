// Package handover lets a new process of retryproxy go on where an old one
// listened, so that an upgrade refuses nobody.
//
// Begin with Sockets: those a process was given, by systemd (FromSystemd) or by
// the retryproxy that runs before it (Ask). It opens what it was given by
// Sockets.Listen and the rest afresh. When it serves, it says so (Old.Serving),
// and the old process drains. Offer is the other end, for the next upgrade.
//
// What is handed over are listening sockets: callers that connect meanwhile
// wait in the same queue of the kernel and are taken by whoever accepts first.
// Connections stay with the process that accepted them.
package handover

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
)

// Sockets are listening sockets by the address they were asked for. The zero
// value has none. Not safe for concurrent use.
type Sockets struct {
	given []socket
}

type socket struct {
	name     string // the address as it was configured; "" when only the socket itself tells
	listener net.Listener
}

// FromSystemd takes the sockets that systemd opened for this process
// (sd_listen_fds(3): LISTEN_PID, LISTEN_FDS), which are none for most. A
// socket that does not listen for a stream is an error.
func FromSystemd() (*Sockets, error) {
	s := &Sockets{}
	for _, f := range activation.Files(true) {
		l, err := net.FileListener(f)
		_ = f.Close() // FileListener made its own descriptor
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("socket %q from systemd: %w; ListenStream= is what retryproxy takes", f.Name(), err)
		}
		s.given = append(s.given, socket{listener: l})
	}
	return s, nil
}

// Listen gives the socket for an address, "host:port" or "unix:/path", and
// forgets it; nil when there is none. The listener is the caller's to close.
func (s *Sockets) Listen(address string) net.Listener {
	for i, g := range s.given {
		if g.name == address || g.name == "" && listensAt(g.listener, address) {
			s.given = append(s.given[:i], s.given[i+1:]...)
			return g.listener
		}
	}
	return nil
}

// Rest is an error that names the sockets nobody listened on; nil when there
// are none.
func (s *Sockets) Rest() error {
	var errs []error
	for _, g := range s.given {
		errs = append(errs, fmt.Errorf("was given a listening socket at %s, which no setting names; "+
			"set RETRYPROXY_LISTEN, RETRYPROXY_ADMIN_LISTEN or a route's LISTEN to it, or do not pass it", g.listener.Addr()))
	}
	return errors.Join(errs...)
}

// Close closes the sockets that nobody listened on.
func (s *Sockets) Close() {
	for _, g := range s.given {
		_ = g.listener.Close()
	}
	s.given = nil
}

// listensAt says whether opening the address would have made such a socket.
// Every wildcard is alike: systemd writes [::] for a bare port.
func listensAt(l net.Listener, address string) bool {
	if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		return l.Addr().Network() == "unix" && l.Addr().String() == path
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	have, isTCP := l.Addr().(*net.TCPAddr)
	if err != nil || !isTCP || want.Port != have.Port {
		return false
	}
	a, b := ip(want), ip(have)
	return a == b || a.IsUnspecified() && b.IsUnspecified()
}

func ip(a *net.TCPAddr) netip.Addr {
	addr, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return netip.IPv6Unspecified()
	}
	return addr.Unmap()
}

// Named is a listening socket and the address it was asked for.
type Named struct {
	Name     string
	Listener net.Listener
}

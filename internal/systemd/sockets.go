// Package systemd provides the listening sockets that systemd opened for this process. A service
// behind a socket unit can be restarted without refusing connections: they wait in the kernel's
// queue.
package systemd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
)

// Sockets holds listening sockets that are not used yet. The zero value has none. It is not safe
// for concurrent use.
type Sockets struct {
	given []net.Listener
}

// Take returns the sockets that systemd opened for this process (sd_listen_fds(3): LISTEN_PID,
// LISTEN_FDS); usually there are none. A socket that is not a listening stream socket is an error.
func Take() (*Sockets, error) {
	s := &Sockets{}
	for _, f := range activation.Files(true) {
		l, err := net.FileListener(f)
		_ = f.Close() // FileListener has duplicated the descriptor
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("socket %q from systemd: %w; expected a socket of ListenStream=", f.Name(), err)
		}
		s.given = append(s.given, l)
	}
	return s, nil
}

// Listen removes and returns the socket for an address, "host:port" or "unix:/path"; nil if there
// is none. The caller must close the listener.
func (s *Sockets) Listen(address string) net.Listener {
	for i, l := range s.given {
		if listensAt(l, address) {
			s.given = append(s.given[:i], s.given[i+1:]...)
			return l
		}
	}
	return nil
}

// Rest returns an error that names the unused sockets, or nil if there are none.
func (s *Sockets) Rest() error {
	var errs []error
	for _, l := range s.given {
		errs = append(errs, fmt.Errorf("systemd passes a listening socket at %s, but no setting has this address; "+
			"set RETRYPROXY_LISTEN, RETRYPROXY_ADMIN_LISTEN or a route's LISTEN to the address, or do not pass the socket", l.Addr()))
	}
	return errors.Join(errs...)
}

// Close closes the unused sockets.
func (s *Sockets) Close() {
	for _, l := range s.given {
		_ = l.Close()
	}
	s.given = nil
}

// listensAt reports whether opening the address would have made such a socket. All wildcards are
// equal: systemd uses [::] for a bare port.
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

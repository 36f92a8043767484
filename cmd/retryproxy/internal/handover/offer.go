package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The bytes that follow the sockets: the new process serves, the old one heard.
const (
	serving = 's'
	heard   = 'h'
)

// startTime is how long a new process may take from getting the sockets to
// serving. Meanwhile no other can ask.
const startTime = time.Minute

// Offer gives this process's listening sockets to the one that will follow it.
// Made by NewOffer, then Serve once.
type Offer struct {
	listener *net.UnixListener
	sockets  []Named
}

// NewOffer listens at path, taking the place of whoever offered there before.
// Only processes of the same user, or root, are answered. The sockets stay the
// caller's.
func NewOffer(path string, sockets []Named) (*Offer, error) {
	if len(sockets) > maxSockets {
		return nil, fmt.Errorf("%d listening sockets cannot be handed over, at most %d can", len(sockets), maxSockets)
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(fresh) // of a process that had our number and died
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the path may be another process's by then
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		_ = l.Close()
		_ = os.Remove(fresh)
		return nil, err
	}
	return &Offer{l, sockets}, nil
}

// Serve answers until a new process serves in place of this one, which is
// true, or until ctx ends. told hears of every try that came to nothing. It
// returns after the listener at path is closed; the file stays.
func (o *Offer) Serve(ctx context.Context, told func(error)) bool {
	stop := context.AfterFunc(ctx, func() { _ = o.listener.Close() })
	defer stop()
	defer o.listener.Close() //nolint:errcheck // nothing is lost
	for {
		conn, err := o.listener.AcceptUnix()
		if err != nil {
			return false
		}
		err = o.give(ctx, conn)
		_ = conn.Close()
		if err == nil {
			o.keepPaths()
			return true
		}
		told(err)
	}
}

// give hands the sockets to one peer and waits until it serves.
func (o *Offer) give(ctx context.Context, conn *net.UnixConn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := samePerson(conn); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(startTime))
	if err := o.send(conn); err != nil {
		return err
	}
	var said [1]byte
	if _, err := conn.Read(said[:]); err != nil {
		return fmt.Errorf("a new process took the sockets and did not come to serve: %w", err)
	}
	if said[0] != serving {
		return fmt.Errorf("a new process took the sockets and said %q instead of serving", said)
	}
	_, _ = conn.Write([]byte{heard}) // it serves, whether it hears this or not
	return nil
}

// send writes the names with the descriptors beside them. Each descriptor is
// held while the kernel copies it.
func (o *Offer) send(conn *net.UnixConn) error {
	names, fds := []string{}, []int{}
	var next func(rest []Named) error
	next = func(rest []Named) error {
		if len(rest) == 0 {
			data, err := json.Marshal(names)
			if err != nil {
				return err
			}
			_, _, err = conn.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
			return err
		}
		raw, err := syscallConn(rest[0].Listener)
		if err != nil {
			return err
		}
		var inner error
		err = raw.Control(func(fd uintptr) {
			names, fds = append(names, rest[0].Name), append(fds, int(fd))
			inner = next(rest[1:])
		})
		return errors.Join(err, inner)
	}
	return next(o.sockets)
}

func syscallConn(l net.Listener) (syscall.RawConn, error) {
	c, ok := l.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", l)
	}
	return c.SyscallConn()
}

// keepPaths leaves the files of unix sockets to the process that has them now.
func (o *Offer) keepPaths() {
	for _, s := range o.sockets {
		if u, ok := s.Listener.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
	}
}

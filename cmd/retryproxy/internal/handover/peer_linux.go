package handover

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// samePerson refuses a peer of another user, root excepted: whoever has the
// sockets can answer callers.
func samePerson(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if peerErr != nil {
		return peerErr
	}
	if int(peer.Uid) != os.Geteuid() && peer.Uid != 0 {
		return fmt.Errorf("the process there runs as user %d, this one as %d; sockets pass between processes of one user only", peer.Uid, os.Geteuid())
	}
	return nil
}

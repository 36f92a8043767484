package systemd

import (
	"net"
	"time"
)

// notifyTime is how long Notify waits for systemd to read earlier notifications.
const notifyTime = time.Second

// Notify sends a state, such as READY=1, to systemd's socket (sd_notify(3): NOTIFY_SOCKET). It does
// nothing without a socket, and does not wait for a systemd that does not read. go-systemd's
// daemon.SdNotify is not used: it has no deadline, so it does not return while that queue is full.
func Notify(socket, state string) error {
	if socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the datagram is sent, or that failed
	_ = c.SetWriteDeadline(time.Now().Add(notifyTime))
	_, err = c.Write([]byte(state))
	return err
}

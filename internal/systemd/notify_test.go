package systemd

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestNotifyDoesNotWaitForASystemdThatDoesNotRead(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test's
	if err := Notify(socket, "READY=1"); err != nil {
		t.Fatal(err)
	}
	filler, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close() //nolint:errcheck // a test's
	for err == nil {     // until its queue is full
		_ = filler.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = filler.Write([]byte("x"))
	}
	ended := make(chan error, 1)
	go func() { ended <- Notify(socket, "READY=1") }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it was sent to a full queue")
		}
	case <-time.After(time.Minute):
		t.Error("it waits")
	}
	if err := Notify("", "READY=1"); err != nil {
		t.Error(err)
	}
}

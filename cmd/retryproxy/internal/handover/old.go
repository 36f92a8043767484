package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// most descriptors that one message may carry: SCM_MAX_FD of Linux
	// (unix(7)).
	maxSockets = 253
	// maxNames bounds the message: 253 addresses of at most 253 bytes and a
	// port, with JSON's quotes around them.
	maxNames = 128 << 10
	// answerTime is for one message between two processes on one machine.
	answerTime = 5 * time.Second
)

// Old is the process that runs before this one, which goes on until Serving.
// A nil Old is nobody. Not safe for concurrent use.
type Old struct{ conn *net.UnixConn }

// Ask asks the process that offers its sockets at path for them. When nobody
// listens there, Old is nil and there are no sockets. Sockets are the caller's
// to Listen on and Close, Old is the caller's to call Serving or Leave on.
func Ask(path string) (*Sockets, *Old, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return &Sockets{}, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the sockets: %w", err)
	}
	sockets, err := receive(conn)
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("ask for the sockets at %s: %w", path, err)
	}
	return sockets, &Old{conn}, nil
}

// Serving tells the old process that it is no longer needed: it drains. The
// error is nil when it heard.
func (o *Old) Serving() error {
	if o == nil {
		return nil
	}
	defer o.Leave()
	_ = o.conn.SetDeadline(time.Now().Add(answerTime))
	if _, err := o.conn.Write([]byte{serving}); err != nil {
		return err
	}
	var heard [1]byte
	_, err := o.conn.Read(heard[:])
	return err
}

// Leave lets the old process go on as if nobody had asked.
func (o *Old) Leave() {
	if o != nil {
		_ = o.conn.Close()
	}
}

// receive reads the message of an Offer: the names as JSON, the descriptors
// beside it.
func receive(conn *net.UnixConn) (*Sockets, error) {
	if err := samePerson(conn); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	data, beside := make([]byte, maxNames), make([]byte, unix.CmsgSpace(4*maxSockets))
	n, besideN, flags, _, err := conn.ReadMsgUnix(data, beside)
	if err != nil {
		return nil, err
	}
	fds, err := descriptors(beside[:besideN])
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(data[:n], &names); err != nil || len(names) != len(fds) || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(fds)
		return nil, errors.New("the process there does not speak as retryproxy does")
	}
	return listeners(names, fds)
}

func descriptors(beside []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

func listeners(names []string, fds []int) (*Sockets, error) {
	s := &Sockets{}
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), names[i])
		l, err := net.FileListener(f)
		_ = f.Close()
		if err != nil {
			closeAll(fds[i+1:])
			s.Close()
			return nil, fmt.Errorf("the socket of %s: %w", names[i], err)
		}
		s.given = append(s.given, socket{names[i], l})
	}
	return s, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

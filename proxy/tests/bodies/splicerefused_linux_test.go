package bodies

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// refuseSplice names the error with which splice(2) fails in a test process of its own.
const refuseSplice = "RETRYPROXY_TEST_REFUSE_SPLICE"

// Where a filter of system calls refuses splice, large bodies are copied, whole and unchanged.
func TestLargeBodiesPassWhereSpliceIsRefused(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"EPERM": unix.EPERM, "ENOSYS": unix.ENOSYS, "EINVAL": unix.EINVAL} {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestLargeBodiesWithoutSplice$", "-test.v")
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", refuseSplice, errno))
			out, err := child.CombinedOutput()
			switch {
			case strings.Contains(string(out), "no filter can be set"):
				t.Skipf("%s", out)
			case err != nil || !strings.Contains(string(out), "--- PASS: TestLargeBodiesWithoutSplice"):
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestLargeBodiesWithoutSplice is the process of its own.
func TestLargeBodiesWithoutSplice(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(refuseSplice))
	if err != nil {
		t.Skip("runs in a process of its own: see TestLargeBodiesPassWhereSpliceIsRefused")
	}
	errno := syscall.Errno(n)
	if err := refuse(unix.SYS_SPLICE, errno); err != nil {
		t.Fatalf("no filter can be set: %v", err)
	}
	if _, err := unix.Splice(-1, nil, -1, nil, 1, 0); !errors.Is(err, errno) {
		t.Fatalf("splice is not refused: %v", err)
	}
	const size = 12 << 20
	want := patternSum(size)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for {
			req, err := http.ReadRequest(c.Reader)
			if err != nil {
				return
			}
			n, crc := sum(req.Body)
			if req.Method == "PUT" {
				c.Say("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n%9d %10d", n, crc)
				continue
			}
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			_, _ = io.Copy(c.Conn, &peers.Pattern{N: size})
		}
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	for i := range 2 {
		res, err := http.ReadResponse(c.Send(peers.Get("/")).Reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, crc := sum(res.Body); n != size || crc != want {
			t.Fatalf("GET: %d bytes, sum %d; want %d, %d", n, crc, size, want)
		}
		c.Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size)))
		_, _ = io.Copy(c.Conn, &peers.Pattern{N: size})
		c.Want(200, fmt.Sprintf("%9d %10d", size, want))
		p.WantOutcome(2*i+1, policy.OutcomeSuccess)
	}
	if rawsocket.CanSplice() {
		t.Error("splice counts as possible")
	}
}

// refuse makes a system call fail in all threads of the process.
func refuse(call uint32, with syscall.Errno) error {
	const (
		setModeFilter = 1 // seccomp(2)
		allThreads    = 1
		retErrno      = 0x00050000
		retAllow      = 0x7fff0000
	)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: retErrno | uint32(with)},
		{Code: unix.BPF_RET | unix.BPF_K, K: retAllow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	return nil
}

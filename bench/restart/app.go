package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// runApp is the application: it says "open" with the time when its port is
// open, and "have" with a number as requests come. With --hold it answers only
// the first --before of them.
func runApp(_ context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("app", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen", "", "address")
	hold := f.Bool("hold", false, "answer only the first requests")
	before := f.Int64("before", 0, "with --hold, how many are answered")
	answer := f.Duration("answer", 0, "time for a response")
	if err := command.Parse(f, args, nil); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "open", time.Now().UnixNano())
	var have atomic.Int64
	go func() {
		for last := int64(-1); ; time.Sleep(5 * time.Millisecond) {
			if n := have.Load(); n != last {
				last = n
				fmt.Fprintln(stdout, "have", n)
			}
		}
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serveApp(c, func(n int64) bool { return *hold && n > *before }, *answer, &have)
	}
}

// serveApp serves one connection, but for the nth request of all where held says so.
func serveApp(c net.Conn, held func(n int64) bool, answer time.Duration, have *atomic.Int64) {
	defer c.Close()
	in := bufio.NewReader(c)
	for readRequest(in) {
		if held(have.Add(1)) {
			select {}
		}
		time.Sleep(answer)
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

// readRequest reads a request with its body, whose length must be given.
func readRequest(in *bufio.Reader) bool {
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return false
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if strings.EqualFold(string(name), "Content-Length") {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return false
			}
		}
	}
	_, err := in.Discard(length)
	return err == nil
}

// app is a running application.
type app struct {
	*process.Child
	have   atomic.Int64
	opened chan time.Time // gets one
}

// startApp starts this program again in the role of the application.
func startApp(addr string, args ...string) (*app, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"--listen", addr}, args...)...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleApp)
	read, write := io.Pipe()
	a := &app{opened: make(chan time.Time, 1)}
	if a.Child, err = process.Start(cmd, write); err != nil {
		return nil, err
	}
	go func() {
		for sc := bufio.NewScanner(read); sc.Scan(); {
			var n int64
			if _, err := fmt.Sscanf(sc.Text(), "open %d", &n); err == nil {
				a.opened <- time.Unix(0, n)
			} else if _, err := fmt.Sscanf(sc.Text(), "have %d", &n); err == nil {
				a.have.Store(n)
			}
		}
	}()
	go func() { <-a.Exited; _ = write.Close() }()
	return a, nil
}

// open waits until the port is, and says since when.
func (a *app) open() (time.Time, error) {
	select {
	case t := <-a.opened:
		return t, nil
	case <-a.Exited:
		return time.Time{}, fmt.Errorf("the application ended at once; it said:\n%s", a.Lines())
	case <-time.After(time.Minute):
		return time.Time{}, fmt.Errorf("the application's port is not open after a minute")
	}
}

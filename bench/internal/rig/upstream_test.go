package rig

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serveOne gives a connection to an upstream in this process.
func serveOne(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = newUpstream(c, 512).serve()
			c.Close()
		}
		ended <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() {
		c.Close()
		l.Close()
		if err := <-ended; err != io.EOF {
			t.Errorf("the upstream ended with %v", err)
		}
	})
	return c, bufio.NewReader(c)
}

func TestUpstreamAnswersWhatThePathAsks(t *testing.T) {
	c, r := serveOne(t)
	traces := map[string]bool{trace: true}
	for _, tc := range []struct {
		path, body     string
		status, length int
	}{
		{"/small", "", 200, len(small)},
		{"/small?id=1", "", 200, len(small)},
		{"/distinct", "", 200, 185},
		{"/distinct", "", 200, 185},
		{"/bytes/100", "", 200, 100},
		{"/bytes/3000000", "", 200, 3_000_000},
		{"/sink", strings.Repeat("b", 3_000_000), 200, 2},
		{"/fail/100", "", 503, 0},
		{"/fail/0", "", 200, 2},
		{"/busy/7", "", 503, 0},
	} {
		go fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\ncontent-length: %d\r\n\r\n%s", tc.path, len(tc.body), tc.body)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%s: %v", tc.path, err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil || res.StatusCode != tc.status {
			t.Errorf("%s: status %d, %v", tc.path, res.StatusCode, err)
		}
		if !strings.HasPrefix(tc.path, "/small") && tc.length > 0 && n != int64(tc.length) {
			t.Errorf("%s: %d bytes, want %d", tc.path, n, tc.length)
		}
		if traced := res.Header.Get("X-Trace"); tc.path == "/distinct" {
			if traces[traced] {
				t.Errorf("X-Trace %q again", traced)
			}
			traces[traced] = true
		}
		if strings.HasPrefix(tc.path, "/busy") && res.Header.Get("Retry-After") != "7" {
			t.Errorf("Retry-After %q", res.Header.Get("Retry-After"))
		}
	}
}

func TestFailuresComeInTheirShare(t *testing.T) {
	for _, percent := range []uint64{0, 1, 10, 50, 100} {
		n := 0
		for i := range uint64(100_000) {
			if fails(i, percent) {
				n++
			}
		}
		if want := int(percent) * 1000; n < want-400 || n > want+400 {
			t.Errorf("%d of 100000 fail, want about %d", n, want)
		}
	}
}

func TestWrkIsRead(t *testing.T) {
	r, err := parseWrk([]byte("Running 1s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\nRequests/sec:   8858.22\nresult\t53336\t571\t1\t3440\n"))
	want := Result{Requests: 53336, Failed: 571, SocketErrors: true, P50: 3440 * time.Microsecond}
	if err != nil || *r != want {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
	if _, err := parseWrk([]byte("unable to connect")); err == nil {
		t.Error("nonsense was understood")
	}
}

func TestWhatH2loadPrintsIsRead(t *testing.T) {
	text := `finished in 1.00s, 8858.00 req/s, 1.9MB/s
requests: 8858 total, 8922 started, 8858 done, 8800 succeeded, 58 failed, 2 errored, 0 timeout
status codes: 8800 2xx, 0 3xx, 3 4xx, 55 5xx
`
	r, err := parseH2load([]byte(text))
	if err != nil || r.Requests != 8858 || r.Failed != 58 || !r.SocketErrors {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := parseH2load([]byte("unable to connect")); err == nil {
		t.Error("no result is a result")
	}
}

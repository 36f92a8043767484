package bridge

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lateEnd is an upstream whose responses are whole at once, while their streams end when
// the test says so. A stream that is given up ends as well, as with an http.ClientConn.
type lateEnd struct {
	length int64
	body   string
	end    chan struct{}
	gaveUp bool // the request's context was cancelled
}

func (u *lateEnd) Release() {}

func (u *lateEnd) RoundTrip(req *http.Request) (*http.Response, error) {
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, u.body)
		select {
		case <-u.end:
			_ = w.Close()
		case <-req.Context().Done():
			u.gaveUp = true
			_ = w.CloseWithError(req.Context().Err())
		}
	}()
	return &http.Response{StatusCode: 200, ContentLength: u.length, Body: r, Header: http.Header{}}, nil
}

// relayed sends one request and reads its response whole, as an exchange does.
func relayed(t *testing.T, u *lateEnd, method string) *UpstreamStream {
	t.Helper()
	s := NewUpstreamStream(u, UpstreamStreamOptions{Scheme: "http"})
	if _, err := io.WriteString(s, method+" / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	var got strings.Builder
	buf := make([]byte, 100)
	for !strings.HasSuffix(got.String(), "\r\n\r\n"+u.body) {
		n, err := s.Read(buf)
		if got.Write(buf[:n]); err != nil {
			t.Fatalf("%q, %v", got.String(), err)
		}
	}
	return s
}

// An upstream may end its stream later than its response; it is not told that its
// client left meanwhile.
func TestAWholeResponseLeavesItsStreamTimeToEnd(t *testing.T) {
	for name, u := range map[string]*lateEnd{
		"with a length": {length: 2, body: "ok"},
		"without one":   {length: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u.end = make(chan struct{})
				ended := 0
				relayed(t, u, "GET").Finish(time.Minute, func() { ended++ })
				time.Sleep(time.Minute - 1)
				synctest.Wait()
				if u.gaveUp || ended != 0 {
					t.Fatalf("given up: %v, ended %d times, within the grace", u.gaveUp, ended)
				}
				close(u.end)
				synctest.Wait()
				if u.gaveUp || ended != 1 {
					t.Errorf("given up: %v, ended %d times, behind the end", u.gaveUp, ended)
				}
			})
		})
	}
}

// One that never ends its stream is reset when the grace is over, and by Close before that.
func TestAStreamThatDoesNotEndIsReset(t *testing.T) {
	for name, end := range map[string]func(s *UpstreamStream){
		"in time":  func(*UpstreamStream) { time.Sleep(time.Minute) },
		"by Close": func(s *UpstreamStream) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, ended := &lateEnd{length: 2, body: "ok"}, 0
				s := relayed(t, u, "GET")
				s.Finish(time.Minute, func() { ended++ })
				end(s)
				synctest.Wait()
				if !u.gaveUp || ended != 1 {
					t.Errorf("given up: %v, ended %d times", u.gaveUp, ended)
				}
			})
		})
	}
}

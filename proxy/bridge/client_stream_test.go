package bridge

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// served runs f on the Caller of one request.
func served(t *testing.T, r *http.Request, f func(c *ClientStream)) (*httptest.ResponseRecorder, bool) {
	t.Helper()
	w := httptest.NewRecorder()
	c := NewClientStream(w, r, nil, nil, ReadAhead{})
	f(c)
	return w, c.Finish()
}

func TestRequestReadsAsHTTP1(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *http.Request)
		want   string
	}{
		"get": {func(r *http.Request) {}, "GET /a?b HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		"fields in order, hop by hop ones left out": {func(r *http.Request) {
			r.Header = http.Header{"X-B": {"2", "3"}, "Accept": {"1"}, "Connection": {"close"}, "Upgrade": {"x"}, "Te": {"trailers"}, "Host": {"h.test"}}
		}, "GET /a?b HTTP/1.1\r\nHost: h.test\r\nAccept: 1\r\nTe: trailers\r\nX-B: 2\r\nX-B: 3\r\n\r\n"},
		"a length": {func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("abc")), 3
			r.Header = http.Header{"Content-Length": {"3"}}
		}, "GET /a?b HTTP/1.1\r\nHost: h.test\r\nContent-Length: 3\r\n\r\nabc"},
		"an announced empty body": {func(r *http.Request) { r.Header = http.Header{"Content-Length": {"0"}} },
			"GET /a?b HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n"},
		"no length": {func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("abc")), -1
			r.Trailer = http.Header{"X-Sum": {"1"}}
		}, "GET /a?b HTTP/1.1\r\nHost: h.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"},
		"another host beside the authority stays to be refused": {func(r *http.Request) { r.Header = http.Header{"Host": {"other"}} },
			"GET /a?b HTTP/1.1\r\nHost: h.test\r\nHost: other\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/a?b", nil)
			r.Host = "h.test"
			tc.change(r)
			_, whole := served(t, r, func(c *ClientStream) {
				got := make([]byte, len(tc.want))
				if _, err := io.ReadFull(c, got); err != nil || string(got) != tc.want {
					t.Errorf("%q (%v), want %q", got, err, tc.want)
				}
			})
			if whole {
				t.Error("nothing was answered, yet it is whole")
			}
		})
	}
}

// What could end a line in a header section ends the stream instead.
func TestRequestThatCouldSmuggleIsNotRead(t *testing.T) {
	for name, change := range map[string]func(r *http.Request){
		"target": func(r *http.Request) { r.RequestURI = "/ HTTP/1.1\r\nX: 1" },
		"method": func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\n" },
		"host":   func(r *http.Request) { r.Host = "a\r\nX: 1" },
		"name":   func(r *http.Request) { r.Header = http.Header{"A\r\nB": {"1"}} },
		"value":  func(r *http.Request) { r.Header = http.Header{"A": {"1\n"}} },
		"NUL":    func(r *http.Request) { r.Header = http.Header{"A": {"\x00"}} },
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			change(r)
			served(t, r, func(c *ClientStream) {
				if b, err := io.ReadAll(c); err == nil || len(b) > 0 {
					t.Errorf("%q %v", b, err)
				}
			})
		})
	}
}

func TestResponseInAnyPieces(t *testing.T) {
	for name, response := range map[string]string{
		"length":  "HTTP/1.1 201 Created\r\nContent-Length: 5\r\nConnection: close\r\nX-A: 1\r\nX-A: 2\r\n\r\nhello",
		"chunked": "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-A: 2\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: t\r\n\r\n",
	} {
		for _, step := range []int{1, 3, 1000} {
			w, whole := served(t, httptest.NewRequest("GET", "/", nil), func(c *ClientStream) {
				for p := []byte(response); len(p) > 0; {
					n := min(step, len(p))
					if _, err := c.Write(p[:n]); err != nil {
						t.Fatalf("%s by %d: %v", name, step, err)
					}
					p = p[n:]
				}
			})
			res := w.Result()
			if !whole || res.StatusCode != 201 || w.Body.String() != "hello" {
				t.Errorf("%s by %d: whole %v, %d %q", name, step, whole, res.StatusCode, w.Body)
			}
			if name == "length" && (len(res.Header["X-A"]) != 2 || res.Header["Connection"] != nil) {
				t.Errorf("%s by %d: %v", name, step, res.Header)
			}
			if name == "chunked" && w.Header().Get(http.TrailerPrefix+"X-T") != "t" {
				t.Errorf("%s by %d: trailers %v", name, step, w.Header())
			}
		}
	}
}

func TestResponseThatIsCutIsNotWhole(t *testing.T) {
	for _, response := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"} {
		if _, whole := served(t, httptest.NewRequest("GET", "/", nil), func(c *ClientStream) { _, _ = c.Write([]byte(response)) }); whole {
			t.Errorf("%q passed for whole", response)
		}
	}
}

func TestNothingMayFollowTheResponse(t *testing.T) {
	served(t, httptest.NewRequest("GET", "/", nil), func(c *ClientStream) {
		if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore")); err == nil {
			t.Error("it was taken")
		}
	})
}

func TestReadingEndsWithTheResponseOrTheClient(t *testing.T) {
	served(t, httptest.NewRequest("GET", "/", nil), func(c *ClientStream) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%d %v, want EOF", n, err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	served(t, httptest.NewRequest("GET", "/", nil).WithContext(ctx), func(c *ClientStream) {
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			t.Fatal(err)
		}
		cancel()
		if n, err := r.Read(make([]byte, 1)); n != 0 || err != errClientGone {
			t.Errorf("%d %v, want %v", n, err, errClientGone)
		}
		if !c.ClientGone() {
			t.Error("the client has left, yet is not gone")
		}
	})
}

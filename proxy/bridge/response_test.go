package bridge

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pool "github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// resetStream is a ResponseWriter of net/http whose stream was reset: it keeps what it was given.
type resetStream struct {
	http.ResponseWriter
	kept [][]byte
}

func (w *resetStream) Write(p []byte) (int, error) {
	if w.kept = append(w.kept, p); len(w.kept) == 2 {
		return 0, http.ErrAbortHandler
	}
	return len(p), nil
}

// What net/http may still read when a write has failed is not used for other clients.
func TestWhatAResetStreamWasGivenIsNotUsedAgain(t *testing.T) {
	for name, headers := range map[string]string{
		"with a length": "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n",
		"chunked":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nEA60\r\n",
	} {
		w := &resetStream{ResponseWriter: httptest.NewRecorder()}
		o := &response{method: []byte("GET")}
		ours := []byte(headers + strings.Repeat("a", 60000))
		if _, err := o.write(w, ours); err != http.ErrAbortHandler {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range ours {
			ours[i] = 'b' // the buffer has another client's bytes
		}
		for range 4 {
			b := pool.Get(pool.Medium)
			for i := range b {
				b[i] = 'b'
			}
		}
		if last := w.kept[1]; bytes.IndexByte(last, 'b') >= 0 {
			t.Errorf("%s: what the failed write was given was changed", name)
		}
	}
}

// interim is a ResponseWriter that notes whether net/http would read the headers later.
type interim struct {
	http.ResponseWriter
	shared []int
}

func (w *interim) WriteHeader(code int) {
	if _, copied := w.Header()["Content-Length"]; code < 200 && !copied {
		w.shared = append(w.shared, code)
	}
}

// net/http reads the headers of an interim response even after the stream was reset, and changing a
// map while it is read ends the process.
func TestInterimHeadersAreNotSharedWithNetHTTP(t *testing.T) {
	w := &interim{ResponseWriter: httptest.NewRecorder()}
	o := &response{method: []byte("GET")}
	_, err := o.write(w, []byte("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	if err != nil || len(w.shared) > 0 {
		t.Errorf("%v, headers of %v are shared", err, w.shared)
	}
	if _, is := w.Header()["Link"]; is {
		t.Errorf("the final response has %v", w.Header())
	}
}

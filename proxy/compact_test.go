package proxy

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// While many requests wait, a buffered response takes as much memory as its length.
func TestManyWaitInLittleMemory(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.Bad503)), func(c *Config) {
		c.Default.Policy.Backoff, c.Default.RequestTimeout = backoff.Fixed{Base: 5 * time.Minute}, time.Hour
	})
	const n = request.Crowd + 20
	for range n {
		p.Dial().Send(peers.Get("/"))
	}
	peers.Soon(t, "all to wait", func() bool { return p.process.Waiting.Load() == n && p.Seen.WaitsBegun() == n })
	least, most := int64(request.Crowd*buffer.Medium), int64(request.Crowd*(buffer.Medium+buffer.Small)+20*300)
	peers.Soon(t, "the answers of the last 20 to be compacted", func() bool { // which happens after Waiting is raised
		kept := int64(p.process.RetryBuffer.InUse())
		return kept >= least && kept <= most
	})
	p.kill()
	peers.Soon(t, "none to wait", func() bool { return p.process.Waiting.Load() == 0 })
}

const id = "X-Request-Id: of-the-client\r\n"

// slimCases are requests that wait before a retry, each on a connection of its own.
var slimCases = map[string]struct {
	request string
	answer  string // of every attempt; with a \x00, of the first and of all others
	answers int    // that the client gets; 0: all until the proxy closes
}{
	"get":         {"GET /a?b HTTP/1.1\r\nHost: app.test\r\n" + id + "Accept: */*\r\n\r\n", peers.Bad503, 1},
	"empty line":  {"\r\nGET / HTTP/1.1\r\nHost: app.test\r\n" + id + "\r\n", peers.Bad503, 1},
	"large head":  {"GET / HTTP/1.1\r\nHost: app.test\r\n" + id + "Cookie: " + strings.Repeat("c", 3000) + "\r\n\r\n", peers.Bad503, 1},
	"larger head": {"GET / HTTP/1.1\r\nHost: app.test\r\n" + id + "Cookie: " + strings.Repeat("c", 5000) + "\r\n\r\n", peers.Bad503, 1},
	"head":        {"HEAD / HTTP/1.1\r\nHost: app.test\r\n" + id + "Connection: close\r\n\r\n", "HTTP/1.1 503 No\r\nX-A: b\r\nContent-Length: 99\r\n\r\n", 0},
	"absolute":    {"GET http://other.test/x HTTP/1.1\r\nHost: app.test\r\n" + id + "\r\n", peers.Bad503, 1},
	"put":         {"PUT / HTTP/1.1\r\nHost: app.test\r\n" + id + "Content-Length: 2000\r\n\r\n" + strings.Repeat("p", 2000), peers.Bad503, 1},
	"chunked": {
		"PUT / HTTP/1.1\r\nHost: app.test\r\n" + id + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /next HTTP/1.1\r\nHost: app.test\r\n" + id + "\r\n",
		peers.Bad503, 2,
	},
	"pipelined": {strings.Repeat("GET /n HTTP/1.1\r\nHost: app.test\r\n"+id+"\r\n", 3), peers.Bad503, 3},
	"many pipelined": {
		strings.Repeat("GET /n HTTP/1.1\r\nHost: app.test\r\n"+id+"\r\n", 60), peers.Bad503, 60,
	},
	"after an informational one": {
		"GET / HTTP/1.1\r\nHost: app.test\r\n" + id + "Connection: close\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\nHTTP/1.1 503 Busy Now\r\nX-One: 1\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy", 0,
	},
	"chunked answer": {
		"GET / HTTP/1.1\r\nHost: app.test\r\nTE: trailers\r\n" + id + "\r\n",
		"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\nX-T: end\r\n\r\n", 1,
	},
	"its buffer used again": {
		"GET / HTTP/1.1\r\nHost: app.test\r\n" + id + "\r\n",
		"HTTP/1.1 503 Busy\r\nX-Held: yes\r\nContent-Length: 4\r\n\r\nbusy\x00" + strings.Repeat("no response ", 40) + "\r\n\r\n", 1,
	},
	"without a body": {"GET / HTTP/1.1\r\nHost: app.test\r\n" + id + "\r\n", "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 1},
	"large response": {"GET / HTTP/1.1\r\nHost: app.test\r\n" + id + "\r\n", "HTTP/1.1 503 Busy\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("z", 40000), 1},
}

// changing is what differs between runs.
var changing = regexp.MustCompile(`(?i)(host|x-forwarded-for|date): [^\r]*\r\n|port=\d+|:\d{4,5}`)

// whatCame is all that the client and the upstream get.
func whatCame(t *testing.T, slim bool, sent, response string, responses int) string {
	u := peers.StartUpstream(t, peers.Script(strings.Split(response, "\x00")...))
	p := startProxy(t, u, nil)
	if slim {
		p.process.Waiting.Store(request.Crowd)
	}
	c := p.Dial().Send(sent)
	var got strings.Builder
	for range responses {
		res, body, err := c.Response("GET")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Header.Write(&got)
		_ = res.Trailer.Write(&got)
		got.WriteString(res.Status + body + "\n")
	}
	if responses > 0 {
		c.CloseWrite()
	}
	rest, err := c.Rest()
	if err != nil {
		t.Fatal(err)
	}
	got.WriteString(rest)
	for i := range u.Sends() {
		got.WriteString(u.Head(i))
	}
	return changing.ReplaceAllString(got.String(), "")
}

// Compacting a request during its wait changes nothing visible.
func TestACompactedWaitChangesNothing(t *testing.T) {
	for name, tc := range slimCases {
		t.Run(name, func(t *testing.T) {
			plain := whatCame(t, false, tc.request, tc.answer, tc.answers)
			slim := whatCame(t, true, tc.request, tc.answer, tc.answers)
			if plain != slim {
				t.Errorf("without:\n%s\nwith:\n%s", plain, slim)
			}
			if !strings.Contains(plain, "X-Retryproxy-Attempt: 4\r\n") {
				t.Error("it was not retried")
			}
		})
	}
}

// A request without an ID keeps the one that the proxy gave it, and the buffered response begins
// its buffer.
func TestACompactedWaitKeepsTheGeneratedRequestID(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, "")) // the first response is held over all waits
	p := startProxy(t, u, nil)
	p.process.Waiting.Store(request.Crowd)
	res := p.Dial().Send(peers.Get("/")).Want(503, "busy")
	if res.Header.Get("X-Retryproxy-Attempts") != "4" || res.ContentLength != 4 {
		t.Errorf("%+v", res)
	}
	id := peers.FieldOf(u.Head(0), "X-Request-Id")
	if len(id) != 32 {
		t.Errorf("the id is %q", id)
	}
	for i := range 4 {
		if got := peers.FieldOf(u.Head(i), "X-Request-Id"); got != id {
			t.Errorf("attempt %d: the id is %q, was %q", i+1, got, id)
		}
	}
}

// TestAConnectionFitsItsSizeClass: the allocator rounds a connection up to one of its size
// classes. Above 3200 bytes that is 3456, for every connection in use.
func TestAConnectionFitsItsSizeClass(t *testing.T) {
	if poison.On {
		t.Skip("in builds that poison, a ticket and each buffer know where they were taken")
	}
	most := uintptr(3200)
	if n := unsafe.Sizeof(conn{}); n > most {
		t.Errorf("a connection takes %d bytes", n)
	}
}

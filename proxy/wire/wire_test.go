package wire

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// decode returns the fields of a header block, as another implementation reads it.
func decode(t *testing.T, block []byte) (all []string) {
	t.Helper()
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { all = append(all, f.Name+"="+f.Value) })
	if _, err := d.Write(block); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

func want(t *testing.T, got []string, fields ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(fields, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestABlockIsReadByOthers(t *testing.T) {
	long := strings.Repeat("v", 70_000)
	var b []byte
	b = AppendHeader(Block, b, "X-Name", "value")
	b = AppendHeader(Block, b, []byte("Content-Type"), []byte("a/b"))
	b = AppendHeader(Block, b, strings.Repeat("N", 200), long)
	b = AppendInt(Block, b, "Age", 1234567890123)
	b = AppendHeader(Block, b, "empty", "")
	h := http1.NewHeader("Set-Cookie", "a=b")
	want(t, decode(t, AppendLine(Block, b, &h)),
		"x-name=value", "content-type=a/b", strings.Repeat("n", 200)+"="+long, "age=1234567890123", "empty=", "set-cookie=a=b")
}

func TestEveryNameOfTheTableIsItself(t *testing.T) {
	names := "accept-ranges access-control-allow-origin age allow cache-control content-disposition content-encoding content-language " +
		"content-length content-location content-range content-type date etag expires last-modified link location proxy-authenticate refresh " +
		"retry-after server set-cookie strict-transport-security transfer-encoding vary via www-authenticate"
	for name := range strings.FieldsSeq(names) {
		if indexOfName([]byte(name)) == 0 {
			t.Error(name, "is not in the table")
		}
		want(t, decode(t, AppendHeader(Block, nil, name, "v")), name+"=v")
	}
}

func TestStatusesAndRequestLines(t *testing.T) {
	for _, status := range []int{100, 103, 200, 204, 206, 299, 304, 400, 404, 429, 500, 503, 599} {
		want(t, decode(t, AppendStatus(nil, status)), ":status="+http1String(status))
	}
	line := func(method, target, authority string, secure bool) []string {
		return decode(t, AppendRequestLine(nil, []byte(method), []byte(target), []byte(authority), secure))
	}
	want(t, line("GET", "/a?b", "h:1", false), ":method=GET", ":scheme=http", ":path=/a?b", ":authority=h:1")
	want(t, line("POST", "/", "h", true), ":method=POST", ":scheme=https", ":path=/", ":authority=h")
	want(t, line("PROPFIND", "*", "", false), ":method=PROPFIND", ":scheme=http", ":path=*")
}

func http1String(status int) string {
	return strings.Fields(string(http1.AppendStatusLine(nil, status, "")))[1]
}

func TestFramingByForm(t *testing.T) {
	for _, c := range []struct {
		f            http1.Framing
		lines, block string
	}{
		{http1.Framing{}, "", ""},
		{http1.Framing{Kind: http1.BodyLength, Length: 5}, "Content-Length: 5\r\n", "content-length=5"},
		{http1.Framing{Kind: http1.BodyLength}, "Content-Length: 0\r\n", "content-length=0"},
		{http1.Framing{Kind: http1.BodyChunked}, "Transfer-Encoding: chunked\r\n", ""},
		{http1.Framing{Kind: http1.BodyStream, Length: -1}, "Transfer-Encoding: chunked\r\n", ""},
		{http1.Framing{Kind: http1.BodyStream, Length: 7}, "Transfer-Encoding: chunked\r\n", "content-length=7"},
		{http1.Framing{Kind: http1.BodyClose}, "", ""},
	} {
		if got := string(AppendFraming(Lines, nil, c.f)); got != c.lines {
			t.Errorf("%+v: %q", c.f, got)
		}
		if got := strings.Join(decode(t, AppendFraming(Block, nil, c.f)), ","); got != c.block {
			t.Errorf("%+v: %q", c.f, got)
		}
	}
}

func TestAGetOfOurOwnIsReadByOthers(t *testing.T) {
	lines := Get(Lines, "/a?b", "h.test:1", "agent")
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(lines.Fields)))
	if err != nil || r.Method != "GET" || r.RequestURI != "/a?b" || r.Host != "h.test:1" || r.UserAgent() != "agent" || !r.Close {
		t.Errorf("%+v %v", r, err)
	}
	block := Get(Block, "/a?b", "h.test:1", "agent")
	if string(block.Method) != "GET" || string(block.Target) != "/a?b" || string(block.Authority) != "h.test:1" {
		t.Errorf("%+v", block)
	}
	want(t, decode(t, block.Fields), "user-agent=agent", "accept=*/*")
}

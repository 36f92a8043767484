package cost

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// steadyHTTP2 sends the same request over and over on one HTTP/2 connection, each on a stream of its own.
// Reading the response allocates nothing.
func steadyHTTP2(t testing.TB, nc net.Conn) func() {
	var first, later bytes.Buffer
	_, _ = io.WriteString(&first, http2.ClientPreface)
	_ = http2.NewFramer(&first, nil).WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	frame := func() []byte {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "app.test"}, {":path", "/api/items?id=1"}, {"user-agent", "steady/1"}, {"accept", "*/*"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		later.Reset()
		_ = http2.NewFramer(&later, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		return bytes.Clone(later.Bytes())
	}
	if _, err := nc.Write(append(first.Bytes(), frame()...)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(nc, 16<<10)
	await := func(id uint32) {
		for {
			h, err := in.Peek(9)
			if err != nil {
				t.Fatal(err)
			}
			length, ends, of := int(h[0])<<16|int(h[1])<<8|int(h[2]), h[3] <= 1 && h[4]&1 != 0, binary.BigEndian.Uint32(h[5:])
			if h[3] == 3 || h[3] == 7 {
				t.Fatalf("a frame of kind %d", h[3])
			}
			if _, err := in.Discard(9 + length); err != nil {
				t.Fatal(err)
			}
			if ends && of == id {
				return
			}
		}
	}
	await(1)
	request, id := frame(), uint32(1) // from now on all fields are in the dynamic table
	return func() {
		id += 2
		binary.BigEndian.PutUint32(request[5:], id)
		if _, err := nc.Write(request); err != nil {
			t.Fatal(err)
		}
		await(id)
	}
}

func TestSteadyStateDoesNotAllocateOverHTTP2(t *testing.T) {
	for name, answer := range map[string]string{
		"a length": steadyOK,
		"chunks":   strings.Replace(steadyOK, "Content-Length: 2\r\n", "Transfer-Encoding: chunked\r\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(answer, "chunked") {
				answer = strings.TrimSuffix(answer, "ok") + "2\r\nok\r\n0\r\n\r\n"
			}
			do := steadyHTTP2(t, steadyProxy(t, echoServer(t, 0, answer)).Dial().Conn)
			per := allocationsOf(do)
			for range 10 { // a request that comes before the worker of the last one has returned makes another stream
				per = min(per, allocationsOf(do))
			}
			if per > allowedAllocs {
				t.Errorf("%.3f allocations per request", per)
			}
		})
	}
}

func BenchmarkProxiedOverHTTP2(b *testing.B) {
	do := steadyHTTP2(b, steadyProxy(b, echoServer(b, 0, steadyOK)).Dial().Conn)
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
}

// Command twoparsers checks that all parsers read alike what retryproxy sends upstream. It generates raw
// requests, by a grammar and by mutating the table of bench/conformance, a quarter of them over HTTP/2, and sends them through the real
// binary to an upstream that records the bytes of each connection. It then sends these bytes to net/http's
// server, nginx and HAProxy. All three must read the same requests, with the same methods, targets, hosts
// and bodies.
//
//	go run ./bench/twoparsers --for 1m
//
// What it sends follows from --seed. Which requests share a connection upstream does not. Exit codes: 0 all
// agree; 1 they do not, or the check failed; 2 wrong arguments.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/conformance"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("twoparsers", run) }

// What is counted, besides the differences that rules explain.
const (
	connections = "connections" // of the proxy to the upstream
	requests    = "requests"    // whole ones on these
	overHTTP2   = "over HTTP/2" // of these, for a client that spoke it: the last one of each such stream
	cutOff      = "cut off"     // connections that ended within a request
)

// batch is how many streams are sent before their results are compared.
const batch = 256

// quiet is how long a client waits for more of a response before it ends its own side.
const quiet = 200 * time.Millisecond

// run sends streams until the time is over, and what reached the upstream to all readers.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var program string
	var lasts time.Duration
	var seed uint64
	f := rig.NewFlags("twoparsers", stderr, &program)
	rig.Number(f, &lasts, "for", time.Minute, time.Millisecond, 24*time.Hour, "how long it lasts")
	f.Seed(&seed, 0)
	if err := f.Parse(args); err != nil {
		return err
	}
	bed := &rig.Bed{}
	defer bed.End()
	recorder := &recorder{}
	recorder.Begin = recorder.begin
	addr := bed.Record(&recorder.Recorder)
	proxy, err := bed.Start(ctx, rig.Spec{Program: program, Upstream: "http://" + addr, Env: []string{"RETRYPROXY_UPSTREAM_HOST=preserve",
		"RETRYPROXY_MAX_RETRIES=0", "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off"}})
	if err != nil {
		return err
	}
	readers, children, err := startReaders(bed)
	if err != nil {
		return err
	}
	children = append(children, proxy)
	r, table, sent := &rig.Findings{}, conformance.Requests(), uint64(0)
	progress, printed := log.New(stderr, "", 0), time.Now()
	for end := time.Now().Add(lasts); ctx.Err() == nil && time.Now().Before(end); sent += batch {
		rig.Parallel(64, batch, func(i int) { _, _, _ = rig.Exchange(proxy.Addr, stream(seed, sent+uint64(i), table), quiet) }) // some are refused
		for _, c := range children {
			if err := c.Alive(); err != nil {
				return err
			}
		}
		kept := recorder.flush()
		rig.Parallel(8, len(kept), func(i int) { compare(r, readers, kept[i]) })
		if time.Since(printed) > time.Second {
			printed = time.Now()
			progress.Printf("%d streams sent, %d connections upstream, %d requests read alike, %d violations", sent+batch, r.Counted(connections), r.Counted(requests), r.N())
		}
	}
	if r.Counted(requests) == 0 || sent >= 4*batch && r.Counted(overHTTP2) == 0 {
		return errors.New("nothing reached the upstream, or nothing over HTTP/2")
	}
	fmt.Fprintf(stdout, "seed %d: %d streams, %d connections upstream, %d requests on them (%d of HTTP/2), %d cut off in one; %d violations\n", seed, sent, r.Counted(connections), r.Counted(requests), r.Counted(overHTTP2), r.Counted(cutOff), r.N())
	for _, k := range rules {
		if n := r.Counted(k.name()); n > 0 {
			fmt.Fprintf(stdout, "  %6d %s: %s\n", n, k.name(), k.why)
		}
	}
	for _, v := range r.All() {
		fmt.Fprintln(stdout, v)
	}
	if r.N() > 0 {
		return rig.ErrFound
	}
	return nil
}

// recorder is the proxy's upstream. It keeps the bytes of each connection. A connection serves one to seven requests.
type recorder struct {
	rig.Recorder

	mu    sync.Mutex // guards what follows
	begun int
	kept  [][]byte // of connections that ended
}

func (k *recorder) begin() (rig.Take, func(all []byte)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := 1 + k.begun%7
	k.begun++
	return func(rig.Message, error) (string, bool) {
		if left--; left == 0 {
			return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", false
		}
		return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true
	}, k.keep
}

func (k *recorder) keep(all []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, all)
}

// flush ends all connections and returns what came over them.
func (k *recorder) flush() (kept [][]byte) {
	k.Each(func(c net.Conn) { _ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) }) // the proxy may be writing
	k.Wait(time.Minute)
	k.mu.Lock()
	defer k.mu.Unlock()
	kept, k.kept = k.kept, nil
	return kept
}

// last is the end of each stream. A parser that misreads the end of the request before it swallows it.
const last = "GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// stream returns what the nth client of a seed sends: one of four speaks HTTP/2.
func stream(seed, n uint64, table []string) []byte {
	if n%4 == 3 {
		return frames(seed, n)
	}
	return generate(seed, n, table)
}

// generate returns the nth stream of a seed in HTTP/1.1: the bytes that one client sends.
func generate(seed, n uint64, table []string) []byte {
	r := rand.New(rand.NewPCG(seed, n))
	var b bytes.Buffer
	for range 1 + r.IntN(4) {
		switch r.IntN(10) {
		case 0:
			b.WriteString(oneOf(r, table...))
		case 1, 2:
			b.Write(rig.Mutate(r, []byte(oneOf(r, table...))))
		case 3, 4:
			b.Write(rig.Mutate(r, []byte(sentence(r))))
		default:
			b.WriteString(sentence(r))
		}
	}
	b.WriteString(last)
	return b.Bytes()
}

// sentence returns a request that the grammar allows, with unusual parts.
func sentence(r *rand.Rand) string {
	method := oneOf(r, "GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "M-SEARCH", "get", "X!#$%&'*+.^_`|~")
	target := oneOf(r, "/", "/a/b?c=d&e", "/%41%2f%00", "//a//b", "/a/../b", "/.", "/?", "/a?b?c", "/a;b=c:@!$&'()*+,", "/\xc3\xa9", "/%zz", "/%", "/..", "http://a.example/x?y", "http://a.example", "http://a.example:8080/", "/\"<>{}|^`\\", "/"+strings.Repeat("a", r.IntN(3000)))
	if method == "OPTIONS" && r.IntN(3) == 0 {
		target = "*"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, target)
	lines := []string{"Host: " + oneOf(r, "a.example", "a.example", "a.example:8080", "[::1]", "1.2.3.4", "A.eXample", "a_b.example")}
	for range r.IntN(5) {
		lines = append(lines, field(r))
	}
	body := framed(r, &lines)
	r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	return b.String() + "\r\n" + body
}

func field(r *rand.Rand) string {
	name := oneOf(r, "X-A", "x", "X_Under_Score", "!#$%&'*+-.^_`|~", "Accept", "Cookie", "Content-Type", "X-Forwarded-For", "Via", "Forwarded", "Range", "If-Match", "Content-Encoding", "TE", "Trailer", "Connection", "Keep-Alive", "Expect", "Upgrade", "Proxy-Connection", "Max-Forwards", "X-Content-Length", "Content.Length", "HTTP2-Settings", "Sec-WebSocket-Key")
	value := oneOf(r, "", "1", "a, b", "trailers", "close", "keep-alive", "upgrade", "100-continue", "websocket", "x-a", "content-length", "transfer-encoding, host", "\xe9\xff", "a\tb", "\"q\\\"\"", "(c)", "a:b:c", "chunked", strings.Repeat("v", r.IntN(2000)))
	return name + ":" + oneOf(r, " ", " ", "", "\t", "  ") + value + oneOf(r, "", "", " ", "\t")
}

// framed adds the framing to lines and returns the body.
func framed(r *rand.Rand, lines *[]string) string {
	body := oneOf(r, "", "hello", "0\r\n\r\n", last, "GET / HTTP/1.1\r\n\r\n", "\r\n", strings.Repeat("z", r.IntN(30000)))
	switch r.IntN(3) {
	case 0:
		return ""
	case 1:
		*lines = append(*lines, oneOf(r, "Content-Length", "content-length", "CONTENT-LENGTH")+":"+oneOf(r, " ", "", "\t ")+fmt.Sprint(len(body)))
		return body
	}
	*lines = append(*lines, oneOf(r, "Transfer-Encoding", "transfer-encoding", "TRANSFER-ENCODING")+":"+oneOf(r, " ", "", "\t")+oneOf(r, "chunked", "Chunked", "CHUNKED"))
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), 1+r.IntN(1+r.IntN(9000)))
		fmt.Fprintf(&b, oneOf(r, "%x", "%X", "%04x")+oneOf(r, "", "", ";a", ";a=b", `;a="b;c"`)+"\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString(oneOf(r, "0", "0", "000", "0;x") + "\r\n")
	for range r.IntN(3) {
		b.WriteString(oneOf(r, "X-T: 1", "X-T:", "Etag: \"x\"", "Content-Length: 7", "Transfer-Encoding: chunked", "Host: b", "X-Sum:\tabc ") + "\r\n")
	}
	return b.String() + "\r\n"
}

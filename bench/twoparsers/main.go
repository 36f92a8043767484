package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("twoparsers", run) }

// What is counted, besides the differences that a rule explains.
const (
	connections = "connections" // the proxy's, each shown to all readers
	requests    = "requests"    // whole ones among the bytes of these
	cutOff      = "cut off"     // connections that ended within a request
)

// batch is how many streams are sent before what came of them is looked at.
const batch = 256

// quiet is how long a response may pause before its client leaves: the proxy waits for more then.
const quiet = 200 * time.Millisecond

// run makes streams until the time is over and shows what reached the upstream to all readers.
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
	addr, err := bed.Record(&recorder.Recorder)
	if err != nil {
		return err
	}
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
	r, table, sent := &rig.Findings{}, usable(), uint64(0)
	p, told := rig.NewProgress(stderr), time.Now()
	for end := time.Now().Add(lasts); ctx.Err() == nil && time.Now().Before(end); sent += batch {
		atOnce(64, batch, func(i int) { _, _, _ = rig.Exchange(proxy.Addr, generate(seed, sent+uint64(i), table), quiet) }) // some are refused
		for _, c := range children {
			if err := c.Alive(); err != nil {
				return err
			}
		}
		kept := recorder.flush()
		atOnce(8, len(kept), func(i int) { compare(r, readers, kept[i]) })
		if time.Since(told) > time.Second {
			told = time.Now()
			p.Line("%d streams sent, %d connections upstream, %d requests read alike, %d violations", sent+batch, r.Counted(connections), r.Counted(requests), r.N())
		}
	}
	if r.Counted(requests) == 0 {
		return errors.New("nothing reached the upstream")
	}
	fmt.Fprintf(stdout, "seed %d: %d streams, %d connections upstream, %d requests on them, %d cut off in one; %d violations\n", seed, sent, r.Counted(connections), r.Counted(requests), r.Counted(cutOff), r.N())
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

// atOnce calls f with 0 to n-1, so many at a time.
func atOnce(many, n int, f func(i int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, many)
	for i := range n {
		room <- struct{}{}
		all.Go(func() { defer func() { <-room }(); f(i) })
	}
	all.Wait()
}

// recorder is the proxy's upstream. It keeps the bytes of each connection, on which it answers one to seven requests.
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

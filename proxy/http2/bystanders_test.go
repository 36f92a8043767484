package http2

import (
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A thousand requests in one read do not all begin before anything else has its turn.
func TestManyRequestsBeginAFewAtATime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const streams = 500
	var s *script
	var all sync.WaitGroup
	all.Add(streams)
	serving, most := 0, 0 // streams that are served, and the most that were runnable beside them
	o := options(func(*textStream) {
		s.c.mu.Lock()
		serving++
		runnable := s.c.running - serving
		for _, later := range s.c.ready {
			if later != nil {
				runnable--
			}
		}
		most = max(most, runnable)
		s.c.mu.Unlock()
		all.Done()
		all.Wait()
	})
	o.Streams = streams
	s = dialScript(t, o)
	for range streams {
		s.open(true)
	}
	s.send(t)
	all.Wait()
	if most > 4*startAtOnce {
		t.Errorf("%d of %d were runnable at once", most, streams)
	}
}

// Streams whose clients opened no window are not woken by each write of another stream.
func TestStreamsWithoutAWindowAreNotWokenByOthers(t *testing.T) {
	const streams = 10
	s := dialScript(t, options(func(s *textStream) {
		if _, err := readHead(s); err == nil {
			_, _ = io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
		}
	}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for range streams {
		s.open(true)
	}
	s.send(t)
	waiting := func() (waiting, woken int) {
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		for _, one := range s.c.streams {
			waiting += one.waiting
		}
		return waiting, len(s.c.out.blocked)
	}
	for n, woken := waiting(); ; n, woken = waiting() {
		if woken > 0 {
			t.Fatalf("%d of %d are woken by every write", woken, n)
		}
		if n == streams {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for id := uint32(1); id < 2*streams; id += 2 {
		_ = s.WriteWindowUpdate(id, 3)
	}
	s.send(t)
	_ = s.nc.SetReadDeadline(time.Now().Add(time.Minute))
	for ended := 0; ended < streams; {
		f, err := s.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, is := f.(*http2.DataFrame); is && d.StreamEnded() {
			if ended++; !strings.Contains("abc", string(d.Data())) {
				t.Errorf("%q", d.Data())
			}
		}
	}
}

package http2

import (
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// relayed sends one request and reads its response whole, whose stream does not end.
func relayed(t *testing.T, length bool) (*peer, *Upstream, *textUpstream) {
	t.Helper()
	p, c := toUpstream(t, upstreamOptions())
	p.answers.Store(true)
	p.sync()
	s := ask(t, c, getRequest)
	p.want("1: :method")
	fields := []string{":status", "200", "content-length", "2"}
	if !length {
		fields[3] = "0"
	}
	p.headers(1, false, fields...)
	if length {
		_ = p.WriteData(1, false, []byte("ok"))
	}
	if status, body, err := respondedWith(s, "GET"); status != 200 || length && body != "ok" || err != nil {
		t.Fatalf("%d %q %v", status, body, err)
	}
	return p, c, s
}

// An upstream may end its stream later than its response; it is not told that its client left meanwhile.
func TestAWholeResponseLeavesItsStreamTimeToEnd(t *testing.T) {
	for _, length := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, c, s := relayed(t, length)
			ended := 0
			s.Finish(time.Minute, func() { ended++ })
			time.Sleep(time.Minute - 1)
			synctest.Wait()
			if ended != 0 || c.InFlight() != 1 {
				t.Fatalf("ended %d times within the grace", ended)
			}
			_ = p.WriteData(1, true, nil)
			p.sync()
			if ended != 1 || c.InFlight() != 0 {
				t.Errorf("ended %d times, %d are in flight", ended, c.InFlight())
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.seen) > 0 {
				t.Error("it was told", p.seen)
			}
		})
	}
}

// One that never ends its stream is reset when the grace is over, and by Close before that.
func TestAStreamThatDoesNotEndIsReset(t *testing.T) {
	for name, end := range map[string]func(s *textUpstream){
		"in time":  func(*textUpstream) { time.Sleep(time.Minute) },
		"by Close": func(s *textUpstream) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c, s := relayed(t, true)
				ended := 0
				s.Finish(time.Minute, func() { ended++ })
				end(s)
				p.want("1: reset CANCEL")
				synctest.Wait()
				if ended != 1 || c.InFlight() != 0 {
					t.Errorf("ended %d times, %d are in flight", ended, c.InFlight())
				}
			})
		})
	}
}

// A stream that was opened and not used gives its place back at once.
func TestAStreamThatWasNotUsedMakesRoom(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	ended := 0
	c.Open().Finish(time.Hour, func() { ended++ })
	if ended != 1 || c.InFlight() != 0 {
		t.Errorf("ended %d times, %d are in flight", ended, c.InFlight())
	}
	p.sync()
}

// A response may pause for longer than any write may take, and an upstream that answers pings stays.
func TestASilentUpstreamIsNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := toUpstream(t, upstreamOptions())
		p.answers.Store(true)
		s := ask(t, c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		_ = s.SetDeadline(time.Now().Add(time.Hour))
		p.want("1: :method")
		p.headers(1, false, ":status", "200", "content-length", "4")
		_ = p.WriteData(1, false, []byte("ab"))
		time.Sleep(10 * time.Minute)
		if _, err := io.WriteString(s, "2\r\ncd\r\n0\r\n\r\n"); err != nil {
			t.Error(err)
		}
		p.want(`1: "cd"`)
		_ = p.WriteData(1, true, []byte("cd"))
		if _, body, err := respondedWith(s, "POST"); body != "abcd" || err != nil {
			t.Errorf("%q %v", body, err)
		}
		if n := p.pings.Load(); n < 1 || n > 4 {
			t.Errorf("%d pings in ten minutes of silence", n)
		}
	})
}

// An upstream that answers no ping while it has a request is gone. An idle one gets none.
func TestAnUpstreamThatVanishedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := toUpstream(t, upstreamOptions())
		time.Sleep(time.Hour)
		if n := p.pings.Load(); n != 0 {
			t.Errorf("%d pings without a request", n)
		}
		s := ask(t, c, getRequest)
		_ = s.SetDeadline(time.Now().Add(time.Hour))
		began := time.Now()
		if _, err := s.Read(make([]byte, 1)); err == nil || time.Since(began) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		p.want("end")
	})
}

// Nothing more is sent to an upstream that seems to be gone, until it sends something.
func TestASilentUpstreamGetsNoMoreRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := true
		o := upstreamOptions()
		o.Silent = func() bool { return gone }
		p, c := toUpstream(t, o)
		p.sync()
		time.Sleep(time.Hour)
		if !c.HasRoom() {
			t.Fatal("an idle one gets none")
		}
		ask(t, c, getRequest)
		p.want("1: :method")
		time.Sleep(silentAfter)
		if c.HasRoom() {
			t.Error("it gets more")
		}
		p.headers(1, true, ":status", "204")
		p.sync()
		if !c.HasRoom() {
			t.Error("it gets no more after its response")
		}
	})
}

// An idle connection ends, and one that was retired ends with its last stream.
func TestAConnectionToAnUpstreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := upstreamOptions()
		o.IdleTimeout = 10 * time.Minute
		p, c := toUpstream(t, o)
		p.sync()
		began := time.Now()
		<-p.over
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute || !c.IsLeaving() {
			t.Errorf("after %v", took)
		}
		p, c = toUpstream(t, o)
		p.sync()
		ask(t, c, getRequest)
		p.want("1: :method")
		c.Retire()
		if c.Open() != nil {
			t.Error("it takes more")
		}
		p.headers(1, true, ":status", "204")
		began = time.Now()
		p.want("end")
		if took := time.Since(began); took > 0 {
			t.Errorf("after %v", took)
		}
	})
}

// Other requests go elsewhere while bodies hold the window of a connection, or the upstream reads nothing.
func TestAStuckConnectionTakesNoMoreStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := toUpstream(t, upstreamOptions(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p.sync()
		s := ask(t, c, postRequest(1<<20))
		go func() { _, _ = s.Write(make([]byte, 1<<17)) }()
		synctest.Wait()
		if !c.HasRoom() {
			t.Error("not at once")
		}
		time.Sleep(stuckAfter)
		if c.HasRoom() {
			t.Error("it takes more")
		}
		_ = p.WriteWindowUpdate(0, 1<<18)
		p.sync()
		if !c.HasRoom() {
			t.Error("it takes no more")
		}
	})
}

// The beginning of a response is handed over, with a body that came meanwhile; so are the errors of reading.
func TestAResponseBeginsInABufferOfItsOwn(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	p.sync()
	s := ask(t, c, getRequest)
	p.want("1: ")
	p.headers(1, false, ":status", "200", "content-length", "2")
	_ = p.WriteData(1, true, []byte("ok"))
	p.sync()
	head, err := s.UpstreamStream.ReadHead()
	defer head.Put()
	var r http1.Response
	n, parseErr := r.Compose(head.Bytes(), http1.Limits{HeaderBytes: 1 << 10, Headers: 10}, []byte("GET"))
	if err != io.EOF || parseErr != nil || r.Status != 200 || string(head.Bytes()[n:]) != "ok" {
		t.Errorf("%v %v %d %q", err, parseErr, r.Status, head.Bytes()[n:])
	}
	s = ask(t, c, getRequest)
	p.want("3: ")
	_ = s.SetReadDeadline(past)
	if _, err := s.UpstreamStream.ReadHead(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = p.WriteRSTStream(3, http2.ErrCodeInternal)
	_ = s.SetReadDeadline(time.Time{})
	if head, err := s.UpstreamStream.ReadHead(); err != errReset || head.Owns() {
		t.Errorf("%q %v", head.Bytes(), err)
	}
}

// Streams of one connection that wait end at their own deadlines, also those that were moved meanwhile.
func TestEachStreamEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := toUpstream(t, upstreamOptions())
		p.answers.Store(true)
		p.sync()
		began := time.Now()
		ended := make(chan time.Duration, 4)
		streams := make([]*textUpstream, cap(ended))
		for i := range streams {
			streams[i] = ask(t, c, getRequest)
			_ = streams[i].SetReadDeadline(began.Add(time.Duration(4-i) * time.Minute))
			go func() {
				if _, err := streams[i].UpstreamStream.ReadHead(); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
				ended <- time.Since(began)
			}()
			p.want("")
		}
		synctest.Wait()
		_ = streams[0].SetReadDeadline(began.Add(time.Second)) // from the last to the first
		_ = streams[3].SetReadDeadline(began.Add(time.Hour))   // the other way
		for _, want := range []time.Duration{time.Second, 2 * time.Minute, 3 * time.Minute, time.Hour} {
			if at := <-ended; at != want {
				t.Errorf("ended after %v, not %v", at, want)
			}
		}
	})
}

// A stream whose request has ended in order serves another one, with its deadlines and what its owner keeps there.
// One that was reset does not, and none is kept without need.
func TestAStreamToAnUpstreamIsUsedAgain(t *testing.T) {
	o := upstreamOptions()
	o.Keep = func(*UpstreamStream) any { return new(int) }
	p, c := toUpstream(t, o)
	p.sync()
	other := ask(t, c, getRequest)
	p.want("1: ")
	first := ask(t, c, getRequest)
	p.want("3: ")
	kept := first.Kept()
	p.headers(3, false, ":status", "200", "content-length", "2")
	_ = p.WriteData(3, true, []byte("ok"))
	if _, body, err := respondedWith(first, "GET"); body != "ok" || err != nil {
		t.Fatal(body, err)
	}
	by := first.readBy
	first.Finish(time.Minute, func() {})
	second := newTextUpstream(c.Open())
	if second.UpstreamStream != first.UpstreamStream || second.Kept() != kept || by.IsZero() || !second.readBy.Equal(by) {
		t.Error("another stream is used, or nothing is kept")
	}
	if _, err := io.WriteString(second, postRequest(2)+"ab"); err != nil {
		t.Fatal(err)
	}
	p.want("5: ")
	p.headers(5, false, ":status", "404", "content-length", "3")
	_ = p.WriteData(5, true, []byte("not"))
	if status, body, err := respondedWith(second, "POST"); status != 404 || body != "not" || err != nil {
		t.Errorf("the second request got %d %q %v", status, body, err)
	}
	_ = p.WriteRSTStream(1, http2.ErrCodeCancel)
	p.sync()
	second.Finish(time.Minute, func() {}) // the last one
	other.Finish(time.Minute, func() {})  // reset
	if s := c.Open(); s == first.UpstreamStream || s == other.UpstreamStream {
		t.Error("a stream is kept without others, or after a reset")
	}
}

// A stream that is kept for another request goes when none comes, also beside one that stays open.
func TestStreamsToAnUpstreamThatAreNotNeededGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := upstreamOptions()
		o.PingAfter = 0
		p, c := toUpstream(t, o)
		p.sync()
		ask(t, c, getRequest)
		p.want("1: ")
		second := ask(t, c, getRequest)
		p.want("3: ")
		p.headers(3, true, ":status", "204")
		if _, _, err := respondedWith(second, "GET"); err != nil {
			t.Fatal(err)
		}
		second.Finish(time.Minute, func() {})
		kept := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.unused.streams)
		}
		before := kept()
		time.Sleep(3 * trimEvery)
		if after := kept(); before != 1 || after != 0 {
			t.Errorf("%d were kept, and %d are", before, after)
		}
	})
}

// An upstream that has responded to a request without all of it gets no rest: the stream is reset, or it would
// stay half open on both sides.
func TestTheRestOfARequestIsNotSentAfterItsResponse(t *testing.T) {
	for name, early := range map[string]bool{"ended before": true, "ended after": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := toUpstream(t, upstreamOptions())
				s := ask(t, c, postRequest(10))
				p.want("1: :method")
				p.headers(1, false, ":status", "200", "content-length", "2")
				_ = p.WriteData(1, early, []byte("ok"))
				if status, body, err := respondedWith(s, "POST"); status != 200 || body != "ok" || err != nil {
					t.Fatalf("%d %q %v", status, body, err)
				}
				p.sync()
				ended := 0
				s.Finish(time.Minute, func() { ended++ })
				if !early {
					synctest.Wait()
					if ended != 0 {
						t.Error("it ended before the upstream's end")
					}
					_ = p.WriteData(1, true, nil)
				}
				p.want("1: reset CANCEL")
				p.sync()
				if ended != 1 || c.InFlight() != 0 {
					t.Errorf("ended %d times, %d are in flight", ended, c.InFlight())
				}
			})
		})
	}
}

package bridge

import (
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// slowBodies writes a body that does not fit to each of n buffers of a, one after the other.
func slowBodies(n int, a ReadAhead) (bodies []*buffer, ends []chan error) {
	for range n {
		b, end := new(buffer), make(chan error, 1)
		b.init(a.buffer())
		go func() { end <- a.write(b, make([]byte, b.limit+1)) }()
		synctest.Wait()
		bodies, ends = append(bodies, b), append(ends, end)
	}
	return bodies, ends
}

// The body that has waited longest for its reader pays, and what it held is dropped.
func TestTheSlowestReaderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := ReadAhead{Window: 64 << 10}
		a.Backlog = NewBacklog(2 * int64(a.Window+a.buffer()))
		bodies, ends := slowBodies(3, a)
		if err := <-ends[0]; err != ErrNotRead || a.Backlog.Ended() != 1 {
			t.Fatalf("the longest ended with %v, %d ended", err, a.Backlog.Ended())
		}
		if n, err := bodies[0].Read(make([]byte, 9)); n != 0 || err != ErrNotRead || bodies[0].data != nil {
			t.Errorf("its reader got %d bytes, %v", n, err)
		}
		for i := range 2 {
			if n, err := io.ReadFull(bodies[i+1], make([]byte, a.buffer()+1)); err != nil {
				t.Errorf("the reader of another got %d bytes, %v", n, err)
			}
			if err := <-ends[i+1]; err != nil {
				t.Error(err)
			}
		}
		if a.Backlog.held != 0 || a.Backlog.slow.Len() != 0 {
			t.Errorf("%d bytes of %d bodies are counted", a.Backlog.held, a.Backlog.slow.Len())
		}
	})
}

// Readers that take something are behind those that take nothing.
func TestAReaderThatIsOnlySlowStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := ReadAhead{Window: 64 << 10}
		a.Backlog = NewBacklog(2 * int64(a.Window+a.buffer()))
		bodies, ends := slowBodies(1, a)
		_, stuck := slowBodies(1, a)
		_, _ = io.ReadFull(bodies[0], make([]byte, 1))
		<-ends[0]
		go func() { ends[0] <- a.write(bodies[0], []byte("xx")) }()
		synctest.Wait()
		last, _ := slowBodies(1, a)
		defer last[0].discard(io.EOF)
		defer bodies[0].discard(io.EOF)
		if err := <-stuck[0]; err != ErrNotRead {
			t.Error(err)
		}
		if len(ends[0]) > 0 {
			t.Error("the slow one ended with", <-ends[0])
		}
	})
}

// Without a bound nothing ends.
func TestABacklogWithoutABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := ReadAhead{Window: 1, Backlog: NewBacklog(0)}
		bodies, ends := slowBodies(50, a)
		for i, b := range bodies {
			if len(ends[i]) > 0 {
				t.Error(<-ends[i])
			}
			b.discard(io.EOF)
		}
		if a.Backlog.Ended() != 0 {
			t.Error(a.Backlog.Ended())
		}
	})
}

// A reader that has just caught up is not ended, although its writer does not know yet.
func TestAReaderThatHasCaughtUpStays(t *testing.T) {
	a := ReadAhead{Window: 64 << 10}
	held := int64(a.Window + a.buffer())
	a.Backlog = NewBacklog(held)
	caughtUp, stuck := new(buffer), new(buffer)
	stops := make([]func(), 2)
	for i, b := range []*buffer{caughtUp, stuck} {
		b.init(a.buffer())
		if _, err := b.writeNow(make([]byte, b.limit)); err != nil {
			t.Fatal(err)
		}
		stops[i] = a.Backlog.Wait(held, func() bool { return b.discardFull(ErrNotRead) })
		if i == 0 {
			_, _ = b.Read(make([]byte, 1))
		}
	}
	if caughtUp.end != nil || stuck.end != ErrNotRead || a.Backlog.Ended() != 1 {
		t.Errorf("ended as %v and %v, %d counted", caughtUp.end, stuck.end, a.Backlog.Ended())
	}
	if a.Backlog.held != held {
		t.Errorf("%d bytes are counted, want %d", a.Backlog.held, held)
	}
	for _, stop := range stops {
		stop()
	}
	if a.Backlog.held != 0 || a.Backlog.slow.Len() != 0 {
		t.Errorf("%d bytes of %d bodies are counted", a.Backlog.held, a.Backlog.slow.Len())
	}
}

// A body that stops waiting while another one ends is left alone from then on.
func TestABodyThatStoppedIsNotEnded(t *testing.T) {
	l := NewBacklog(2)
	var stopped atomic.Bool
	done := make(chan struct{})
	var stop func()
	l.Wait(1, func() bool {
		go func() { stop(); stopped.Store(true); close(done) }()
		for range 100 { // let it try
			runtime.Gosched()
		}
		return true
	})
	stop = l.Wait(1, func() bool {
		if stopped.Load() {
			t.Error("it was ended after it had stopped")
		}
		return true
	})
	l.Wait(2, func() bool { return true })
	<-done
}

package bridge

import (
	"io"
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

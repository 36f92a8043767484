package bridge

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func newBuffer() *buffer {
	b := new(buffer)
	b.init(bufferLimit)
	return b
}

func TestBufferKeepsOrderAndEndsAfterTheLastByte(t *testing.T) {
	b := newBuffer()
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		for p := sent; len(p) > 0; {
			n := min(len(p), 7777)
			if _, err := b.Write(p[:n]); err != nil {
				t.Error(err)
			}
			p = p[n:]
		}
		b.close(io.EOF)
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes (%v), want %d", len(got), err, len(sent))
	}
	if n := cap(b.data); n > 2*bufferLimit {
		t.Errorf("it grew to %d bytes", n)
	}
}

func TestBufferWriterWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer()
		wrote := make(chan struct{})
		go func() { defer close(wrote); _, _ = b.Write(make([]byte, bufferLimit+1)) }()
		synctest.Wait()
		select {
		case <-wrote:
			t.Fatal("it took more than its limit")
		default:
		}
		if n, err := b.Read(make([]byte, 10)); n != 10 || err != nil {
			t.Fatal(n, err)
		}
		<-wrote
	})
}

func TestBufferDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer()
		began := time.Now()
		b.setReadDeadline(began.Add(time.Minute))
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		b.setWriteDeadline(time.Now().Add(time.Second))
		if n, err := b.Write(make([]byte, 2*bufferLimit)); n != bufferLimit || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d %v", n, err)
		}
		// An expired deadline goes before what could be read.
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		b.setReadDeadline(time.Time{})
		if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
}

// A deadline moved into the past ends a read that waits without one.
func TestBufferDeadlineMovedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer()
		ended := make(chan error)
		go func() { _, err := b.Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		b.setReadDeadline(time.Unix(1, 0))
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestBufferDropForgetsWhatWasNotRead(t *testing.T) {
	b := newBuffer()
	_, _ = b.Write([]byte("abc"))
	b.discard(net.ErrClosed)
	if n, err := b.Read(make([]byte, 3)); n != 0 || err != net.ErrClosed {
		t.Error(n, err)
	}
	if _, err := b.Write([]byte("d")); err != net.ErrClosed {
		t.Error(err)
	}
}

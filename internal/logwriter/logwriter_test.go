package logwriter

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// reader is an output whose reader can stall, or be gone.
type reader struct {
	mu      sync.Mutex // held while the reader stalls; guards the fields
	text    bytes.Buffer
	fails   error
	shorter bool // writes one byte of what it is given, then fails
	writes  int
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	if r.shorter {
		p = p[:1]
	}
	if r.fails == nil || r.shorter {
		r.text.Write(p)
		return len(p), r.fails
	}
	return 0, r.fails
}

// set changes what the next writes return.
func (r *reader) set(fails error, shorter bool) {
	r.mu.Lock()
	r.fails, r.shorter = fails, shorter
	r.mu.Unlock()
}

func report(dropped uint64) []byte { return fmt.Appendf(nil, "dropped %d\n", dropped) }

func line(w *Writer, text string) { _, _ = w.Write([]byte(text + "\n")) }

// try runs f with a Writer in virtual time, and returns what was written.
func try(t *testing.T, f func(w *Writer, out *reader)) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		out := &reader{}
		w := New(out)
		w.ReportDropped(report)
		f(w, out)
		if !w.Close(time.Second) {
			t.Error("not everything was written")
		}
		text = out.text.String()
	})
	return text
}

func TestLinesAreWrittenWholeAndInOrder(t *testing.T) {
	var want strings.Builder
	got := try(t, func(w *Writer, _ *reader) {
		for i := range 10000 {
			line(w, fmt.Sprint(i))
			fmt.Fprintln(&want, i)
		}
	})
	if got != want.String() {
		t.Errorf("%d bytes, expected %d", len(got), want.Len())
	}
}

func TestAStalledReaderBlocksNobodyAndIsToldWhatItMissed(t *testing.T) {
	long := strings.Repeat("x", 1023)
	got := try(t, func(w *Writer, out *reader) {
		line(w, "first")
		synctest.Wait()
		stall := make(chan struct{})
		go func() {
			out.mu.Lock()
			<-stall
			out.mu.Unlock()
		}()
		synctest.Wait()
		for range 2 * maxBuffered / 1024 {
			line(w, long)
		}
		dropped := w.Dropped()
		if dropped == 0 || dropped >= 2*maxBuffered/1024 {
			t.Errorf("%d lines were dropped", dropped)
		}
		close(stall)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		line(w, "last")
		synctest.Wait()
		if w.Dropped() != dropped {
			t.Errorf("%d lines dropped in the end, %d before", w.Dropped(), dropped)
		}
	})
	lines := strings.Split(strings.TrimSpace(got), "\n")
	kept, n := 0, 0
	for _, l := range lines {
		if l == long {
			kept++
		}
		_, _ = fmt.Sscanf(l, "dropped %d", &n)
	}
	if kept+n != 2*maxBuffered/1024 || kept == 0 || n == 0 || lines[0] != "first" || lines[len(lines)-1] != "last" || len(lines) != kept+3 {
		t.Errorf("%d lines, %d kept, %d reported as dropped, first %.20s, last %.20s", len(lines), kept, n, lines[0], lines[len(lines)-1])
	}
}

func TestWhatCannotBeWrittenIsCountedAndReportedOnce(t *testing.T) {
	got := try(t, func(w *Writer, out *reader) {
		out.set(syscall.EPIPE, false)
		for range 3 {
			line(w, "lost")
			synctest.Wait()
		}
		if n := w.Dropped(); n != 3 || out.writes > 4 {
			t.Errorf("%d dropped, expected 3, after %d writes", n, out.writes)
		}
		out.set(errors.New("no space"), true)
		line(w, "cut")
		synctest.Wait()
		out.set(nil, false)
		line(w, "kept")
		synctest.Wait()
		if n := w.Dropped(); n != 4 {
			t.Errorf("%d dropped in the end", n)
		}
	})
	if got != "ckept\ndropped 4\n" {
		t.Errorf("%q", got)
	}
}

func TestAFullPipeThatDoesNotBlockIsTriedAgain(t *testing.T) {
	got := try(t, func(w *Writer, out *reader) {
		out.set(syscall.EAGAIN, true)
		line(w, "slow")
		time.Sleep(2 * fullPause)
		out.set(nil, false)
	})
	if got != "slow\n" {
		t.Errorf("%q", got)
	}
}

func TestCloseWaitsNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &reader{}
		out.set(syscall.EAGAIN, false)
		w := New(out)
		line(w, "stuck")
		began := time.Now()
		if w.Close(time.Second) || time.Since(began) != time.Second {
			t.Errorf("closed after %v", time.Since(began))
		}
		line(w, "late")
		if n := w.Dropped(); n != 1 {
			t.Errorf("%d dropped", n)
		}
		out.set(nil, false)
		<-w.over
	})
}

func TestABrokenOutputDoesNotDelayTheEnd(t *testing.T) {
	got := try(t, func(w *Writer, out *reader) {
		out.set(syscall.EPIPE, false)
		line(w, "lost")
	})
	if got != "" {
		t.Errorf("%q", got)
	}
}

package floodguard

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// framesOf is what write writes, behind the preface.
func framesOf(write func(f *http2.Framer)) []byte {
	var b bytes.Buffer
	b.WriteString(Preface)
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	write(f)
	return b.Bytes()
}

// watched reads all of b through a frameWatch, n bytes at a time, and gives how long it took.
func watched(t *testing.T, b []byte, n int, slowed, away func()) time.Duration {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	w := Watch(theirs, slowed, away)
	want := len(b)
	go func() {
		for len(b) > 0 {
			k := min(n, len(b))
			if _, err := ours.Write(b[:k]); err != nil {
				return
			}
			b = b[k:]
		}
		_ = ours.Close()
	}()
	began := time.Now()
	if got, err := io.Copy(io.Discard, struct{ io.Reader }{w}); err != nil || int(got) != want {
		t.Errorf("%d of %d bytes, %v", got, want, err)
	}
	return time.Since(began)
}

// Frames that ask for nothing are read at once as far as an allowance goes, and then
// as fast as it grows, however the bytes come; frames that ask for something are not counted.
func TestFramesThatAskForNothingAreReadSlowly(t *testing.T) {
	many := func(n int, one func(f *http2.Framer) error) []byte {
		return framesOf(func(f *http2.Framer) {
			for range n {
				_ = one(f)
			}
		})
	}
	for name, tc := range map[string]struct {
		one    func(f *http2.Framer) error
		atOnce int // 0: not counted
	}{
		"RST_STREAM":              {func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }, resetsAtOnce},
		"SETTINGS":                {func(f *http2.Framer) error { return f.WriteSettings() }, IdleFrames},
		"SETTINGS with content":   {func(f *http2.Framer) error { return f.WriteSettings(http2.Setting{ID: 3, Val: 9}) }, IdleFrames},
		"PING":                    {func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, IdleFrames},
		"PRIORITY":                {func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{}) }, IdleFrames},
		"CONTINUATION":            {func(f *http2.Framer) error { return f.WriteContinuation(1, false, []byte("x")) }, IdleFrames},
		"CONTINUATION, empty":     {func(f *http2.Framer) error { return f.WriteContinuation(1, false, nil) }, IdleFrames},
		"DATA, empty":             {func(f *http2.Framer) error { return f.WriteData(1, false, nil) }, IdleFrames},
		"of an unknown kind":      {func(f *http2.Framer) error { return f.WriteRawFrame(0x99, 0, 0, make([]byte, 300)) }, IdleFrames},
		"DATA, empty, at its end": {func(f *http2.Framer) error { return f.WriteData(1, true, nil) }, 0},
		"DATA":                    {func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) }, 0},
		"HEADERS": {func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc"), EndHeaders: true})
		}, 0},
		"WINDOW_UPDATE": {func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1) }, 0},
	} {
		for _, pieces := range []int{1, 7, 4096} {
			synctest.Test(t, func(t *testing.T) {
				slowed := 0
				took := func(n int) time.Duration {
					return watched(t, many(n, tc.one), pieces, func() { slowed++ }, func() {})
				}
				if d := took(tc.atOnce); d != 0 || slowed != 0 {
					t.Errorf("%s: as many as are allowed at once took %v, slowed down %d times", name, d, slowed)
				}
				const more = 2000 // in two seconds
				d := took(tc.atOnce + more)
				if tc.atOnce == 0 && d != 0 {
					t.Errorf("%s: took %v", name, d)
				}
				if tc.atOnce != 0 && (d < 1500*time.Millisecond || d > 2500*time.Millisecond || slowed != 1) {
					t.Errorf("%s: %d more than are allowed at once took %v, slowed down %d times", name, more, d, slowed)
				}
			})
		}
	}
}

// A client that floods on and on is told to go away; one that pauses is not.
func TestAFloodThatGoesOnGetsGoAway(t *testing.T) {
	for name, tc := range map[string]struct {
		pause time.Duration
		want  int
	}{"on and on": {0, 1}, "with pauses": {1500 * time.Millisecond, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				away := 0
				w := Watch(nil, func() {}, func() { away++ })
				for range 20 * idleFramesPerSecond {
					if w.frames.tokens--; w.frames.tokens < -idleFramesPerSecond {
						w.pace()
						time.Sleep(tc.pause)
					}
				}
				if away != tc.want {
					t.Errorf("told %d times", away)
				}
			})
		})
	}
}

// The allowance grows again with time and with responses.
func TestTheAllowanceOfFramesIsEarned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Watch(nil, func() {}, func() {})
		w.scan.skip = 0
		ping := framesOf(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) })[len(Preface):]
		took := func(n int) time.Duration {
			began := time.Now()
			for range n {
				w.inspect(ping)
			}
			w.pace()
			return time.Since(began)
		}
		if d := took(IdleFrames); d != 0 {
			t.Errorf("the first took %v", d)
		}
		if d := took(idleFramesPerSecond); d != time.Second {
			t.Errorf("a second's took %v", d)
		}
		w.credit.Add(300)
		if d := took(300); d != 0 {
			t.Errorf("300 behind 300 responses took %v", d)
		}
		time.Sleep(time.Hour)
		took(1)
		if d := took(IdleFrames + 500); d != 500*time.Millisecond {
			t.Errorf("500 more than are allowed at once took %v", d)
		}
	})
}

// Streams that we reset for a client's fault count as if it had reset them; those that
// we reset for reasons of our own do not.
func TestResetsThatAClientCausesAreCounted(t *testing.T) {
	faults := []http2.ErrCode{http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed, http2.ErrCodeFrameSize, http2.ErrCodeRefusedStream}
	sent := framesOf(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: 3, Val: 9})
		for _, code := range append(faults, http2.ErrCodeNo, http2.ErrCodeInternal) {
			_ = f.WriteRSTStream(1, code)
			_ = f.WriteData(3, false, []byte("\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x01")) // as content
		}
	})[len(Preface):]
	for n := 1; n <= len(sent); n++ {
		synctest.Test(t, func(t *testing.T) {
			w := Watch(discards{}, func() {}, func() {})
			for rest := sent; len(rest) > 0; rest = rest[min(n, len(rest)):] {
				_, _ = w.Write(rest[:min(n, len(rest))])
			}
			w.pace()
			if got := resetsAtOnce - w.resets.tokens; got != len(faults) {
				t.Fatalf("written %d bytes at a time: %d counted, want %d", n, got, len(faults))
			}
			if got := IdleFrames - w.frames.tokens; got != len(faults) {
				t.Fatalf("written %d bytes at a time: %d frames counted, want %d", n, got, len(faults))
			}
		})
	}
}

// discards takes all that is written.
type discards struct{ net.Conn }

func (discards) Write(p []byte) (int, error) { return len(p), nil }

package attempt

import (
	"io"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// An upload is stuck if, for stuckAfter, no piece was written and the upstream's system acknowledged no
// byte. It ends only if the client has left as well. So an upstream that reads slowly is not stuck.
func TestAnUploadIsStuckWhileTheUpstreamTakesNothing(t *testing.T) {
	r := newRequest(t, serve(t, stalls))
	a := r.env.New()
	a.Begin(1, r.clock.Now(), nil, Options{})
	up, err := r.Dial(t.Context(), upstream.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.use(up)
	defer a.Abandon()
	u := &a.upload
	u.running = true // as if its pump were in a write
	defer func() { u.running = false }()

	endsAfter := func(silence time.Duration) bool {
		u.takenAt = r.clock.Now().Add(-silence)
		return u.leftWhileStuck()
	}
	untilItEnds := func(what string) { // the acknowledgement may come meanwhile
		t.Helper()
		for end := time.Now().Add(testTimeout); !endsAfter(stuckAfter); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not stuck: %s", what)
			}
		}
	}
	r.hungUp = true
	untilItEnds("before the first byte")
	if endsAfter(-time.Hour) {
		t.Error("ended though no time has passed")
	}
	if r.pieces.Add(1); endsAfter(stuckAfter) {
		t.Error("ended, though a piece was written")
	}
	untilItEnds("after a piece")
	if _, err := io.WriteString(up, "x"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testTimeout); endsAfter(stuckAfter); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an acknowledged byte is no progress")
		}
	}
	untilItEnds("after a byte")
	if r.hungUp = false; endsAfter(time.Hour) {
		t.Error("ended, though its client stays")
	}
}

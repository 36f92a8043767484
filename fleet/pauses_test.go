package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
)

func TestAPauseReachesAllOthers(t *testing.T) {
	s := enginetest.Start(t)
	a, b, c := joined(t, s), joined(t, s), joined(t, s)
	a.RateLimitPauseBegan(7, 5*time.Second)
	for _, p := range []*process{b, c} {
		eventually(t, "learnt", func() bool { return p.pause(7) > 0 })
		if left := p.pause(7); left > 5*time.Second || left < 4*time.Second {
			t.Errorf("learnt %v of 5 s", left)
		}
	}
	eventually(t, "counted", func() bool { return a.Stats().PausesSent == 1 && b.Stats().PausesReceived == 1 })
	if n := a.Stats().PausesReceived; n != 0 || a.pause(7) != 0 {
		t.Errorf("%d learnt by the one who told", n)
	}
}

func TestALateJoinerReceivesActivePauses(t *testing.T) {
	s := enginetest.Start(t)
	a := joined(t, s)
	a.RateLimitPauseBegan(1, time.Hour)
	a.RateLimitPauseBegan(2, time.Millisecond)
	a.RateLimitPauseBegan(3, time.Minute)
	eventually(t, "told", func() bool { return a.Stats().PausesSent == 3 })
	time.Sleep(2 * time.Millisecond) // the second pause is over
	b := joined(t, s)
	if one, two, three := b.pause(1), b.pause(2), b.pause(3); one <= 59*time.Minute || one > time.Hour || two != 0 || three <= 40*time.Second || three > time.Minute {
		t.Errorf("learnt %v, %v and %v", one, two, three)
	}
}

func TestScopesDoNotMix(t *testing.T) {
	s := enginetest.Start(t)
	a, b := joined(t, s), joinWith(t, Options{Engine: scoped(s.Engine(), "other")})
	b.awaitListening()
	a.RateLimitPauseBegan(7, time.Minute)
	b.RateLimitPauseBegan(8, time.Minute)
	eventually(t, "told", func() bool { return a.Stats().PausesSent == 1 && b.Stats().PausesSent == 1 })
	c := joined(t, s)
	eventually(t, "two of the scope", func() bool { return c.Stats().Processes == 2 })
	if c.pause(7) == 0 || c.pause(8) != 0 || b.pause(7) != 0 {
		t.Errorf("learnt %v and %v; %v; %d members", c.pause(7), c.pause(8), b.pause(7), c.Stats().Processes)
	}
}

// Fifty processes that get the same 429 at once publish one pause.
func TestTheSamePauseIsPublishedOnce(t *testing.T) {
	s := enginetest.Start(t)
	listener := joined(t, s)
	for range 10 {
		joined(t, s).RateLimitPauseBegan(7, time.Minute)
	}
	eventually(t, "learnt", func() bool { return listener.pause(7) > 0 })
	joined(t, s).RateLimitPauseBegan(9, time.Minute) // arrives after all of them
	eventually(t, "learnt", func() bool { return listener.pause(9) > 0 })
	if n := listener.Stats().PausesReceived; n > 4 {
		t.Errorf("learnt %d pauses, of one that ten told and another", n)
	}
}

func TestManyPausesArePublishedInFewCalls(t *testing.T) {
	s := enginetest.Start(t)
	a, b := joined(t, s), joined(t, s)
	before := a.Stats().Commands
	for key := range uint64(640) {
		a.RateLimitPauseBegan(key, time.Minute)
	}
	eventually(t, "all learnt", func() bool { return b.Stats().PausesReceived == 640 })
	if n := a.Stats().Commands - before; n > 40 {
		t.Errorf("%d calls for 640 pauses", n)
	}
}

// Pauses beyond the buffer are dropped; the caller never waits.
func TestPublishingDoesNotBlock(t *testing.T) {
	f, err := New(Options{Engine: enginetest.Start(t).Engine()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.link.client.Close()
	for key := range uint64(pauseBuffer + 5) { // it is not running
		f.RateLimitPauseBegan(key, time.Minute)
	}
	if n := f.Stats().PausesDropped; n != 5 {
		t.Errorf("%d dropped, want 5", n)
	}
}

func TestHostileMessages(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	bad := []string{
		"", "x", "x ", "x y", "x 7", "x 7:", "x :7", "x 7:0", "x 7:-1", "x 7:86400000001", "x 7:9223372036854775807", "x 7:99999999999999999999",
		"x 7:1e9", "x zz:1", "x 11112222333344445:1", "\x00\xff \xff:1", "x 7:1:1",
	}
	for _, m := range bad {
		s.Do("PUBLISH", p.pausesChannel(), m)
	}
	s.Do("PUBLISH", p.pausesChannel(), "x 8:1000 nonsense 9:2000")
	eventually(t, "the good ones", func() bool { return p.pause(8) == time.Millisecond && p.pause(9) == 2*time.Millisecond })
	if p.pause(7) != 0 {
		t.Errorf("believed %v", p.pause(7))
	}
	if n := p.Stats().Errors; n < uint64(len(bad))-3 {
		t.Errorf("%d errors of %d messages", n, len(bad))
	}
}

// A list of pauses with garbage does no harm.
func TestAHostileListOfPauses(t *testing.T) {
	s := enginetest.Start(t)
	a := joined(t, s)
	s.Do("ZADD", a.pausesKey(), "inf", "7", "1e300", "8", 5, "9")
	s.Do("ZADD", a.pausesKey(), fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()), "a", fmt.Sprint(time.Now().Add(240*time.Hour).UnixMicro()), "b")
	p := joined(t, s)
	if p.pause(7) != 0 || p.pause(8) != 0 || p.pause(9) != 0 || p.pause(0xb) != 0 || p.pause(0xa) < 59*time.Minute {
		t.Errorf("learnt %v", p.pausesReceived)
	}
	a.RateLimitPauseBegan(1, time.Minute)
	eventually(t, "told all the same", func() bool { return p.pause(1) > 0 })
}

package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestQueueGivesEventsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	q := newEventQueue(Never)
	in, out := 0, 0
	take := func() bool {
		last := q.now
		e, ok := q.next()
		if ok && e.at < last {
			t.Fatalf("event of %v after one of %v", e.at, last)
		}
		if ok {
			out++
		}
		return ok
	}
	for i := range 400_000 {
		q.after(time.Duration(r.Int64N(1000))-1, jobLook, 0, 0)
		in++
		if r.IntN(20) < 9+i%3 {
			take()
		}
	}
	for take() {
	}
	if in != out {
		t.Errorf("%d events went in, %d came out", in, out)
	}
}

func TestEventsOfOneTimeKeepTheirOrder(t *testing.T) {
	q := newEventQueue(Never)
	for i := range int32(100) {
		q.after(time.Second, jobLook, 2*i, 0)
		q.now += 7
		q.after(time.Second-7, jobLook, 2*i+1, 0)
		q.now -= 7
	}
	for i := range int32(200) {
		if e, _ := q.next(); e.who != i {
			t.Fatalf("event %d came at place %d", e.who, i)
		}
	}
}

func TestEventsOfTheFarFutureCome(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	q := newEventQueue(3 * time.Hour)
	for range 3000 {
		q.after(time.Duration(r.Int64N(int64(3*time.Hour))), jobLook, 0, 0)
	}
	q.after(3*time.Hour, jobLook, 1, 0) // at the end: dropped
	n := 0
	for last := time.Duration(0); ; n++ {
		e, ok := q.next()
		if !ok {
			break
		}
		if e.at < last || e.who == 1 {
			t.Fatalf("event of %v after one of %v, or beyond the end", e.at, last)
		}
		last = e.at
	}
	if n != 3000 {
		t.Errorf("%d of 3000 events came", n)
	}
}

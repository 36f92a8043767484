package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQueueGivesEventsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	q := newEventQueue(Never, 50*time.Millisecond, time.Second, 50*time.Millisecond, 0)
	if len(q.lanes) != 2 {
		t.Fatalf("%d lanes", len(q.lanes))
	}
	var due, got []time.Duration
	add := func(d time.Duration) {
		due = append(due, q.now+max(d, 0))
		q.after(d, jobLook, 0, 0)
	}
	for i := range 5000 {
		add(50 * time.Millisecond)
		add(time.Second)
		add(time.Duration(r.Int64N(int64(2 * time.Second))))
		add(-time.Second) // now
		for range i % 9 {
			if e, ok := q.next(); ok {
				got = append(got, e.at)
			}
		}
	}
	for e, ok := q.next(); ok; e, ok = q.next() {
		got = append(got, e.at)
	}
	if !slices.IsSorted(got) {
		t.Error("not in order of time")
	}
	slices.Sort(due)
	if !slices.Equal(due, got) {
		t.Errorf("%d events went in, %d came out, or at other times", len(due), len(got))
	}
}

func TestEventsOfOneTimeKeepTheirOrder(t *testing.T) {
	q := newEventQueue(Never, time.Second)
	for i := range int32(100) {
		q.after(time.Second, jobLook, 2*i, 0) // lane
		q.now += 7
		q.after(time.Second-7, jobLook, 2*i+1, 0) // heap
		q.now -= 7
	}
	for i := range int32(200) {
		if e, _ := q.next(); e.who != i {
			t.Fatalf("event %d came at place %d", e.who, i)
		}
	}
}

func TestCancelledEventsDoNotCome(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	q := newEventQueue(Never, time.Second, time.Minute)
	left := map[int32]timer{}
	gone := 0
	var who int32
	for range 20_000 {
		who++
		left[who] = q.after([]time.Duration{time.Second, time.Minute}[r.IntN(2)], jobLook, who, 0)
		for w, timer := range left { // any
			if r.IntN(2) == 0 {
				q.cancel(timer)
				q.cancel(timer) // a second time is nothing
				delete(left, w)
				gone++
			}
			break
		}
		if r.IntN(4) == 0 {
			e, _ := q.next()
			timer, there := left[e.who]
			if !there {
				t.Fatalf("event %d came, though it was cancelled or came before", e.who)
			}
			q.cancel(timer) // it has come: this is nothing
			delete(left, e.who)
		}
	}
	for e, ok := q.next(); ok; e, ok = q.next() {
		if _, there := left[e.who]; !there {
			t.Fatalf("event %d came, though it was cancelled or came before", e.who)
		}
		delete(left, e.who)
	}
	if len(left) > 0 || gone < 1000 {
		t.Errorf("%d events never came; %d were cancelled", len(left), gone)
	}
}

func TestEventsOfTheFarFutureCome(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	q := newEventQueue(3 * time.Hour)
	for range 3000 {
		q.after(time.Duration(r.Int64N(int64(3*time.Hour))), jobLook, 0, 0)
	}
	q.after(3*time.Hour, jobLook, 1, 0) // at the end: not kept
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

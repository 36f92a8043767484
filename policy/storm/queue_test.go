package storm

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQueueGivesEventsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	q := newQueue(50*time.Millisecond, time.Second, 50*time.Millisecond, 0)
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
	q := newQueue(time.Second)
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

package sim

import (
	"testing"
	"time"
)

// outageOf returns a storm of a server that is stopped from 1 s on, with an accept queue of 1: room
// for two. At 2 s, four clients send. They are the only ones.
func outageOf(down, patience time.Duration) Config {
	c := Default()
	c.Clients = Clients{N: 4, Every: 24 * time.Hour, Patience: patience}
	c.Server.AcceptQueue = 1
	c.Faults = []Fault{{Kind: Stop, At: time.Second, For: down}, {Kind: Burst, At: 2 * time.Second, N: 4}}
	c.Length = 10 * time.Minute
	return c
}

// at returns the counts of the second that begins at from.
func at(r *Result, from time.Duration) Second { return r.Sum(from, from+time.Second) }

// The SYNs at 2, 3, 5 and 9 s are dropped, and that at 17 s is accepted.
func TestADroppedSYNIsSentAgainAfterDoublingWaits(t *testing.T) {
	r := Run(outageOf(10*time.Second, time.Minute))
	if queued, dropped := at(r, 11*time.Second).Good, at(r, 17*time.Second).Good; queued != 2 || dropped != 2 {
		t.Errorf("%d good responses when the server resumes and %d at the next SYN, want 2 and 2: %v", queued, dropped, r.Seconds[:20])
	}
}

func TestConnectingEndsWithAnErrorAfterTheLastSYN(t *testing.T) {
	r := Run(outageOf(5*time.Minute, 5*time.Minute))
	if failed := at(r, 129*time.Second).Bad; failed != 2 { // 127 s after the first
		t.Errorf("%d clients got an error 127 s after their first SYN, want 2: %v", failed, r.Seconds[:140])
	}
	if good := at(r, 301*time.Second).Good; good != 2 {
		t.Errorf("%d good responses when the server resumes, want 2", good)
	}
}

// Who gives up sends no further SYN, but a connection that is queued remains until it is accepted.
func TestAnAbandonedConnectionKeepsItsPlaceInTheQueue(t *testing.T) {
	r := Run(outageOf(10*time.Second, 2*time.Second))
	if r.Sent != 2 || at(r, 11*time.Second).AtOnce != 2 {
		t.Errorf("%d requests reached the server, %d at once when it resumed; want the 2 that were queued", r.Sent, at(r, 11*time.Second).AtOnce)
	}
	if all := r.Sum(0, 10*time.Minute); all.Late != 4 || all.Good != 0 {
		t.Errorf("%d given up and %d good, want 4 and 0", all.Late, all.Good)
	}
}

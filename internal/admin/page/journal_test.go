package page

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// ended is a request that the journal might want.
func ended(path string, at time.Time, took time.Duration, o policy.Outcome, attempts int) *proxy.Ended {
	e := &proxy.Ended{Route: "default", Method: []byte("GET"), Path: []byte(path), Began: at.Add(-took), Took: took, Code: 200, Outcome: o, Attempts: attempts}
	for i := range min(attempts, 8) {
		e.Steps = append(e.Steps, proxy.Step{Began: time.Duration(i) * time.Second, Took: time.Millisecond, Status: 503, Class: policy.Rejected})
	}
	return e
}

// offer does what the data path does.
func (j *journal) offer(e *proxy.Ended) bool {
	if !j.wants(e.Began.Add(e.Took).UnixNano(), e.Took, e.Outcome) {
		return false
	}
	j.keep(e)
	return true
}

func paths(list []Request) string {
	var all []string
	for _, r := range list {
		all = append(all, r.Path)
	}
	return strings.Join(all, " ")
}

func TestJournalKeepsTheLastThatFailed(t *testing.T) {
	var j journal
	for i := range 2 * keptFailed {
		j.offer(ended(strings.Repeat("x", i+1), noon, time.Millisecond, policy.OutcomeGaveUpRetriesExhausted, 4))
	}
	got, _ := j.read(noon)
	if len(got.Failed) != keptFailed || len(got.Recovered) != 0 {
		t.Fatalf("%d failed, %d recovered", len(got.Failed), len(got.Recovered))
	}
	if first, last := len(got.Failed[0].Path), len(got.Failed[keptFailed-1].Path); first != 2*keptFailed || last != keptFailed+1 {
		t.Errorf("from %d to %d", first, last)
	}
	if a := got.Failed[0].Attempts; len(a) != 4 || a[3].Began != 3e6 || a[3].Result != "503" || a[3].Class != "rejected" {
		t.Errorf("attempts %+v", a)
	}
}

func TestJournalTellsRecoveredFromFailed(t *testing.T) {
	var j journal
	j.offer(ended("/rescued", noon, time.Millisecond, policy.OutcomeRecovered, 2))
	j.offer(ended("/shed", noon, time.Millisecond, policy.OutcomeFailFast, 0))
	j.offer(ended("/hedged", noon, time.Millisecond, policy.OutcomeSuccess, 2))
	j.offer(ended("/left", noon, time.Millisecond, policy.OutcomeClientGone, 1))
	got, _ := j.read(noon)
	if paths(got.Failed) != "/left /shed" || paths(got.Recovered) != "/rescued" {
		t.Errorf("failed %s, recovered %s", paths(got.Failed), paths(got.Recovered))
	}
}

func TestJournalKeepsTheSlowest(t *testing.T) {
	var j journal
	for i := range 100 {
		took := time.Duration(1+i*37%100) * time.Millisecond
		j.offer(ended(took.String(), noon, took, policy.OutcomeSuccess, 1))
	}
	got, _ := j.read(noon)
	if len(got.Slow) != keptSlow || got.Slow[0].Took != 100e3 || got.Slow[keptSlow-1].Took != 100e3-(keptSlow-1)*1e3 {
		t.Errorf("%s", paths(got.Slow))
	}
	if len(got.Failed)+len(got.Recovered) > 0 {
		t.Error("a request without fault is among the others")
	}
}

// A fast request is turned away by two numbers, before it is copied.
func TestFastRequestIsNotWanted(t *testing.T) {
	var j journal
	for range keptSlow {
		if !j.offer(ended("/slow", noon, time.Second, policy.OutcomeSuccess, 1)) {
			t.Fatal("not wanted while there is room")
		}
	}
	if j.wants(noon.UnixNano(), time.Second, policy.OutcomeSuccess) {
		t.Error("wanted though no slower than any")
	}
	if !j.wants(noon.UnixNano(), time.Second+time.Millisecond, policy.OutcomeSuccess) {
		t.Error("not wanted though slower")
	}
	if allocs := testing.AllocsPerRun(100, func() { j.wants(noon.UnixNano(), time.Millisecond, policy.OutcomeSuccess) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestSlowestAreForgottenAfterTheWindow(t *testing.T) {
	var j journal
	for range keptSlow {
		j.offer(ended("/old", noon, time.Hour, policy.OutcomeSuccess, 1))
	}
	j.offer(ended("/younger", noon.Add(time.Minute), 2*time.Hour, policy.OutcomeSuccess, 1))
	later := noon.Add(Window + time.Second)
	if !j.offer(ended("/new", later, time.Millisecond, policy.OutcomeSuccess, 1)) {
		t.Fatal("not wanted after the window")
	}
	if got, _ := j.read(later); paths(got.Slow) != "/younger /new" {
		t.Errorf("%s", paths(got.Slow))
	}
	if got, _ := j.read(later.Add(Window + time.Second)); len(got.Slow) > 0 {
		t.Errorf("still shown: %s", paths(got.Slow))
	}
}

func TestRefusedHeadIsNotKept(t *testing.T) {
	var j journal
	if j.wants(noon.UnixNano(), time.Hour, policy.OutcomeRefused) {
		t.Error("wanted")
	}
}

func TestRecordsAreCutToSize(t *testing.T) {
	var j journal
	e := ended("/"+strings.Repeat("p", 5000)+"\xff", noon, 100*time.Hour, policy.OutcomeFailFast, 1000)
	e.Method = []byte(strings.Repeat("M", 500))
	e.RequestID = []byte(strings.Repeat("i", 128))
	j.offer(e)
	got, _ := j.read(noon)
	r := got.Failed[0]
	if len(r.Path) != maxPath+len("…") || !strings.HasSuffix(r.Path, "…") || len(r.Method) != maxMethod+len("…") || len(r.Attempts) != 8 || r.Count != 1000 {
		t.Errorf("%+v", r)
	}
	if r.ID != strings.Repeat("i", maxID)+"…" {
		t.Errorf("the id is %q", r.ID)
	}
	if r.Took != 1<<32-1 {
		t.Errorf("took %d", r.Took)
	}
	j.offer(ended("/a\xffb", noon, time.Second, policy.OutcomeFailFast, 0))
	if got, _ := j.read(noon); got.Failed[0].Path != "/a\uFFFDb" {
		t.Errorf("%q", got.Failed[0].Path)
	}
}

// Who finds the lock taken goes on.
func TestKeepNeverWaits(t *testing.T) {
	var j journal
	j.mu.Lock()
	j.keep(ended("/a", noon, time.Second, policy.OutcomeFailFast, 0))
	j.mu.Unlock()
	if got, _ := j.read(noon); len(got.Failed) > 0 {
		t.Error("kept without the lock")
	}
}

func TestJournalBearsManyAtOnce(t *testing.T) {
	var j journal
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 500 {
				j.offer(ended("/a", noon.Add(time.Duration(i)*time.Second), time.Duration(i), policy.Outcome(i%policy.NumOutcomes), i%3))
				if i%50 == 0 {
					j.read(noon)
				}
			}
		})
	}
	all.Wait()
	if got, version := j.read(noon); len(got.Failed) == 0 || version == 0 {
		t.Error("nothing kept")
	}
}

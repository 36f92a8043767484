package overload

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/ctl/sim"
)

func TestNeedGrowsAboveFree(t *testing.T) {
	o := sim.Default().Server
	for _, c := range []struct {
		at   int
		want time.Duration
	}{
		{1, 100 * time.Millisecond},
		{30, 100 * time.Millisecond},
		{45, 105 * time.Millisecond},
		{60, 110250 * time.Microsecond},
		{330, 265330 * time.Microsecond},
	} {
		if got := need(&o, c.at); got < c.want-time.Microsecond || got > c.want+time.Microsecond {
			t.Errorf("with %d at once %v, want %v", c.at, got, c.want)
		}
	}
	if got := need(&o, 1<<30); got <= 0 {
		t.Errorf("with very many at once %v", got)
	}
}

// TestWorkIsDoneAtItsTime drives the wheel with times of its own.
func TestWorkIsDoneAtItsTime(t *testing.T) {
	w := &work{o: Model{Server: sim.Default().Server}}
	j := &job{done: make(chan int, 1)}
	w.begin(j)
	w.turn(j.began.Add(90 * time.Millisecond))
	if len(j.done) != 0 {
		t.Fatal("answered after 90 ms, want 100")
	}
	w.turn(j.began.Add(150 * time.Millisecond))
	if len(j.done) != 1 || <-j.done != 200 {
		t.Fatal("not answered with 200 after 150 ms")
	}
	if most, _ := w.load(); len(w.jobs) != 0 || most != 1 {
		t.Errorf("%d there, most %d; want 0, 1", len(w.jobs), most)
	}
}

// TestAbandonedWorkCounts: those that wait make the others slow, whoever left.
func TestAbandonedWorkCounts(t *testing.T) {
	w := &work{o: Model{Server: sim.Default().Server}}
	jobs := make([]*job, 330)
	for i := range jobs {
		jobs[i] = &job{done: make(chan int, 1)}
		w.begin(jobs[i])
	}
	last := jobs[len(jobs)-1].began
	for ms := range 200 {
		w.turn(last.Add(time.Duration(ms) * time.Millisecond))
	}
	if most, _ := w.load(); most != len(jobs) || len(w.jobs) != len(jobs) {
		t.Fatalf("%d of %d left after 200 ms, want all: each takes 265", len(w.jobs), len(jobs))
	}
	for ms := range 200 {
		w.turn(last.Add(time.Duration(200+ms) * time.Millisecond))
	}
	if most, _ := w.load(); len(w.jobs) != 0 || most != len(jobs) {
		t.Errorf("%d left after 400 ms, most %d; want 0, %d", len(w.jobs), most, len(jobs))
	}
}

func TestServerRejectsWhenTold(t *testing.T) {
	w := &work{o: Model{Server: sim.Server{Base: time.Millisecond}}}
	go func() {
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			w.turn(time.Now())
		}
	}()
	server := httptest.NewServer(w)
	defer server.Close()
	for _, want := range []int{200, 503, 200} {
		w.change(func() { w.status = want })
		resp, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
}

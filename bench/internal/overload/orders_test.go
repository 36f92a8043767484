package overload

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// arrived adds a request to w.
func arrived(w *work, path string) *job {
	j := &job{path: path, done: make(chan int, 1)}
	w.begin(j)
	return j
}

// doneBy turns w each millisecond until a time after the start, and reports whether the job is done.
func doneBy(w *work, j *job, start time.Time, after time.Duration) bool {
	for at := time.Duration(0); at <= after; at += time.Millisecond {
		w.turn(start.Add(at))
	}
	return len(j.done) > 0
}

// TestOthersWaitForAWorker: with one worker, requests are done one after the other, in their order.
func TestOthersWaitForAWorker(t *testing.T) {
	w := &work{o: Flat(50*time.Millisecond, 1)}
	first, second := arrived(w, "/1"), arrived(w, "/2")
	start := first.began
	if !doneBy(w, first, start, 60*time.Millisecond) || len(second.done) > 0 {
		t.Fatal("after 60 ms the first is not done, or the second is")
	}
	if doneBy(w, second, start, 99*time.Millisecond) || !doneBy(w, second, start, 120*time.Millisecond) {
		t.Error("the second is not done after 99 to 120 ms")
	}
	if most, total := w.load(); most != 2 || total != 2 {
		t.Errorf("most %d, total %d; want 2, 2", most, total)
	}
}

// TestOrdersChangeHowLongRequestsTake with the times that they are told.
func TestOrdersChangeHowLongRequestsTake(t *testing.T) {
	flat := Flat(10*time.Millisecond, 0)
	cold, cached := flat, flat
	cold.Cold, cold.ColdFor = 1, 90*time.Millisecond
	cached.CacheFor = 2 * time.Millisecond
	for name, tc := range map[string]struct {
		model  Model
		orders []string
		takes  time.Duration
		status int
	}{
		"the model":           {model: flat, takes: 10 * time.Millisecond, status: 200},
		"delayed":             {model: flat, orders: []string{"delay 90ms"}, takes: 100 * time.Millisecond, status: 200},
		"no longer delayed":   {model: flat, orders: []string{"delay 90ms", "delay 0s"}, takes: 10 * time.Millisecond, status: 200},
		"slower":              {model: flat, orders: []string{"slower 4"}, takes: 40 * time.Millisecond, status: 200},
		"the first of a cold": {model: cold, takes: 100 * time.Millisecond, status: 200},
		"cached":              {model: cached, takes: 2 * time.Millisecond, status: 200},
		"forgotten":           {model: cached, orders: []string{"forget"}, takes: 10 * time.Millisecond, status: 200},
		"an error":            {model: flat, orders: []string{"500"}, takes: 10 * time.Millisecond, status: 500},
	} {
		w := &work{o: tc.model}
		for _, order := range tc.orders {
			if err := obey(w, nil, order); err != nil {
				t.Fatal(err)
			}
		}
		j := arrived(w, "/")
		if doneBy(w, j, j.began, tc.takes-time.Millisecond) || !doneBy(w, j, j.began, tc.takes+time.Millisecond) {
			t.Errorf("%s: not done after %v", name, tc.takes)
		} else if status := <-j.done; status != tc.status {
			t.Errorf("%s: status %d, want %d", name, status, tc.status)
		}
	}
	if err := obey(&work{}, nil, "fire"); err == nil {
		t.Error("an unknown order is obeyed")
	}
}

// TestACacheFillsAgain: a path is fast once it was answered, others are not, and errors are not kept.
func TestACacheFillsAgain(t *testing.T) {
	w := &work{o: Flat(10*time.Millisecond, 0)}
	w.o.CacheFor = time.Millisecond
	for _, tc := range []struct {
		order, path string
		fast        bool
	}{{"forget", "/a", false}, {"load", "/a", true}, {"load", "/b", false}, {"500", "/c", false}, {"200", "/c", false}, {"load", "/c", true}, {"forget", "/a", false}} {
		if err := obey(w, nil, tc.order); err != nil {
			t.Fatal(err)
		}
		j := arrived(w, tc.path)
		if fast := doneBy(w, j, j.began, 2*time.Millisecond); fast != tc.fast {
			t.Errorf("%s after %s: fast %v", tc.path, tc.order, fast)
		}
		doneBy(w, j, j.began, 20*time.Millisecond)
	}
}

// TestDoorsEndConnections: open ones and new ones, until they are told to accept.
func TestDoorsEndConnections(t *testing.T) {
	d := &doors{open: map[net.Conn]struct{}{}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Listener = &door{s.Listener, d}
	s.Start()
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func() error {
		res, err := client.Get(s.URL)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	for _, how := range []string{"rst", "fin"} {
		idle, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
		if err := get(); err != nil { // the idle connection was accepted before
			t.Fatal(err)
		}
		d.set(how)
		if _, err := idle.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: an open connection goes on", how)
		}
		if get() == nil {
			t.Errorf("%s: a new connection is served", how)
		}
		d.set("accept")
		if err := get(); err != nil {
			t.Errorf("after %s: %v", how, err)
		}
	}
}

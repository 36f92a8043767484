package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// three rounds in which the machine became three times slower, and ours is
// steadily at 0.8 of HAProxy's cost.
func rounds() *result {
	r := &result{Work: "some work", Unit: "us CPU", Goal: "<= 0.9"}
	for _, base := range []float64{10, 30, 20} {
		r.add(rig.HAProxy, base)
		r.add(rig.Nginx, base*0.7)
		r.add(rig.Retryproxy, base*0.8)
	}
	r.sent(rig.Retryproxy, &rig.Result{Requests: 1000, Failed: 1})
	return r
}

func TestRatiosAreTakenWithinRounds(t *testing.T) {
	r := rounds()
	r.add(rig.Retryproxy, 1000)
	r.add(rig.HAProxy, 10) // a round in which something else ran
	r.add(rig.Nginx, 7)
	r.conclude(func(r *result) bool { return r.ratio() <= 0.9 })
	v := r.of(rig.Retryproxy)
	if v.Ratio < 0.799 || v.Ratio > 0.801 || v.High != 100 || !r.Met {
		t.Errorf("%+v, met %v", v, r.Met)
	}
	if r.belowNginx() {
		t.Error("0.8 is said to be below 0.7")
	}
	if got := r.failedShare(); got != 0.001 {
		t.Errorf("share failed %v", got)
	}
}

func TestGoalsCanBeMissed(t *testing.T) {
	for _, c := range cases {
		r := &result{}
		for range 3 {
			r.add(rig.HAProxy, 1)
			r.add(rig.Nginx, 1)
			v := 1000.0
			if c.name == "cores" {
				v = 1
			}
			r.add(rig.Retryproxy, v)
		}
		if r.conclude(c.met); r.Met {
			t.Errorf("%s: met by anything", c.name)
		}
		r = &result{}
		r.add(rig.HAProxy, 10)
		r.add(rig.Nginx, 10)
		r.add(rig.Retryproxy, 3)
		if r.conclude(c.met); !r.Met {
			t.Errorf("%s: not met by 3 where HAProxy takes 10", c.name)
		}
	}
}

func TestDocument(t *testing.T) {
	r := rounds()
	r.conclude(func(*result) bool { return false })
	d := &document{Results: []*result{r}}
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "peers.json")
	if err := d.tell(&out, file); err != nil {
		t.Fatal(err)
	}
	want := "| some work | us CPU | 20.0 | 14.0 (0.70, 0.70 to 0.70) | 16.0 (0.80, 0.80 to 0.80), 0.1000 % failed | <= 0.9 | missed |"
	if !strings.Contains(out.String(), want) || d.missed() != 1 {
		t.Errorf("missed %d:\n%s", d.missed(), out.String())
	}
	b, err := os.ReadFile(file)
	var back document
	if err == nil {
		err = json.Unmarshal(b, &back)
	}
	if err != nil || back.Results[0].Values[rig.Retryproxy].Median != 16 {
		t.Errorf("%v, %+v", err, back.Results)
	}
}

func TestArguments(t *testing.T) {
	for _, bad := range []string{"--cases=none", "--peers=caddy", "--rounds=0", "--slice=1ms", "--waiting=0", "--connections=100000", "more"} {
		if _, err := parse([]string{bad}, io.Discard); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	o, err := parse([]string{"--cases", "get,idle", "--peers", "nginx"}, io.Discard)
	if err != nil || !o.wants("idle") || o.wants("put16m") || strings.Join(o.proxies(), " ") != "nginx retryproxy" {
		t.Errorf("%+v, %v", o, err)
	}
}

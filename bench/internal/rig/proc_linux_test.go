package rig

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestMain lets the test binary be a process that works.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "burn" {
		for filled = bytes.Repeat([]byte("x"), 64<<20); ; {
			filled[0]++
		}
	}
	RunRole()
	os.Exit(m.Run())
}

// filled is package-wide so that no compiler takes it for unused.
var filled []byte

func TestWhatAProcessCosts(t *testing.T) {
	var p *Child
	err := pinned(Cores()[:1], func() (err error) { p, err = Start(exec.Command(os.Args[0], "burn"), nil); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		cpu, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		pss, err := p.PSS()
		if err != nil {
			t.Fatal(err)
		}
		if cpu >= 50*time.Millisecond && pss >= 64<<20 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute: %v of CPU, %d bytes; %v", cpu, pss, p.Alive())
		}
	}
}

func TestAProcessThatEndedIsNoticed(t *testing.T) {
	p, err := Start(exec.Command(os.Args[0], "-test.run=^$"), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited
	if p.Alive() == nil {
		t.Error("it is said to be alive")
	}
}

func TestARoleAnswersOrders(t *testing.T) {
	var b Bed
	defer b.End()
	w, err := b.StartRole("echo", nil, nil, "hello")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := w.Order("say %d", 7); got != "hello say 7" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if _, err := w.Order("end"); err == nil || w.Ended(time.Minute) == "exit status 0" {
		t.Errorf("an order that fails: %v, %s", err, w.Ended(0))
	}
}

func init() {
	Role("echo", func(args []string) (func(string) (string, error), error) {
		return func(order string) (string, error) {
			if order == "end" {
				return "", os.ErrInvalid
			}
			return args[0] + " " + order, nil
		}, nil
	})
}

package oldrig

import (
	"bytes"
	"os"
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
	os.Exit(m.Run())
}

// filled is package-wide so that no compiler takes it for unused.
var filled []byte

func TestWhatAProcessCosts(t *testing.T) {
	c := &command{path: os.Args[0], args: []string{"burn"}, cores: Cores()[:1], environ: os.Environ()}
	p, err := c.start()
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
	c := &command{path: os.Args[0], args: []string{"-test.run=^$"}, environ: os.Environ()}
	p, err := c.start()
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited
	if p.Alive() == nil {
		t.Error("it is said to be alive")
	}
}

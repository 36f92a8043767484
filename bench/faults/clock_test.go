//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheClockOfThisGoCanBeStepped(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(strings.TrimSpace(string(root)) + "/src/time/time.go")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := stepping(source)
	if err != nil {
		t.Fatal(err)
	}
	if want := "sec += [...]int64{0, 3600, -3600}[(mono-startNano)/750000000%3]\n"; !bytes.Contains(changed, []byte(want)) {
		t.Error("Now is as it was")
	}
}

func TestAnotherPackageTimeIsAnError(t *testing.T) {
	for _, source := range []string{"package time\n", nowAsIs + nowAsIs} {
		if _, err := stepping([]byte(source)); err == nil {
			t.Errorf("%q is taken", source)
		}
	}
}

func TestWaitsAreJudged(t *testing.T) {
	for _, tc := range []struct {
		least, took time.Duration
		wrong       int64
	}{
		{askedFor, askedFor, 0}, {askedFor, longestWait, 0}, {0, 0, 0},
		{askedFor, askedFor - 1, 1}, {askedFor, longestWait + 1, 1}, {0, longestWait + 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &waits{}
			w.begin("a", askedFor)
			time.Sleep(askedFor)
			w.end("a")
			w.end("a") // the client may ask thrice
			w.begin("b", tc.least)
			time.Sleep(tc.took)
			w.end("b")
			if n, err := w.judged(); err != nil || n != tc.wrong {
				t.Errorf("%v asked for, %v taken: %d, %v, want %d", tc.least, tc.took, n, err, tc.wrong)
			}
		})
	}
}

func TestThatNobodyWaitedIsAnError(t *testing.T) {
	w := &waits{}
	if _, err := w.judged(); err == nil {
		t.Error("taken")
	}
}

package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func settledNow(f *Files) bool {
	settled, _ := f.look()
	return settled
}

// settled checks until a change is reported, or three times.
func settled(f *Files) bool {
	for range 3 {
		if settledNow(f) {
			return true
		}
	}
	return false
}

func TestReportsEveryKindOfChangeOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "env")
	write(t, path, "a")
	f := New(path)
	if settled(f) {
		t.Fatal("reported a change that there was not")
	}
	later := time.Now().Add(time.Hour)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"written longer", func() error { return os.WriteFile(path, []byte("ab"), 0o600) }},
		{"touched", func() error { return os.Chtimes(path, later, later) }},
		{"replaced by one of the same size and time", func() error {
			other := filepath.Join(dir, "other")
			write(t, other, "cd")
			if err := os.Chtimes(other, later, later); err != nil {
				return err
			}
			return os.Rename(other, path)
		}},
		{"removed", func() error { return os.Remove(path) }},
		{"there again", func() error { return os.WriteFile(path, []byte("x"), 0o600) }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if !settled(f) {
			t.Errorf("%s: not reported", step.name)
		}
		if settled(f) {
			t.Errorf("%s: reported twice", step.name)
		}
	}
}

// A ConfigMap volume: env -> ..data/env, ..data -> ..2024_1; the kubelet makes
// ..2024_2 and renames a new ..data over the old one.
func TestReportsConfigMapSwap(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"..2024_1", "..2024_2"} {
		must(os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "env"), "same")
	}
	must(os.Symlink("..2024_1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/env", filepath.Join(dir, "env")))
	f := New(filepath.Join(dir, "env"))
	must(os.Symlink("..2024_2", filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	must(os.RemoveAll(filepath.Join(dir, "..2024_1")))
	if !settled(f) {
		t.Error("the swap was not reported")
	}
}

func TestDoesNotReportWhileTheFileIsBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	write(t, path, "")
	f := New(path)
	content := ""
	for range 5 {
		content += "x"
		write(t, path, content)
		if settledNow(f) {
			t.Fatal("reported although the file had changed since the last look")
		}
	}
	if !settledNow(f) {
		t.Error("not reported after the writing had ended")
	}
}

func TestSetKeepsWhatIsKnown(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "1")
	f := New(a)
	write(t, a, "12")
	f.Set([]string{a, b})
	if !settled(f) {
		t.Error("Set lost a change of a file that stayed on the list")
	}
	f.Set([]string{b})
	write(t, a, "123")
	if settled(f) {
		t.Error("reported a file that is no longer on the list")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		New().Run(ctx, func() {})
		close(done)
	}()
	cancel()
	<-done
}

// running runs f until the test ends. What it returns waits for as long as a report may take, and wants n of
// them in all by then.
func running(t *testing.T, f *Files) (want func(n int32)) {
	var reported atomic.Int32
	go f.Run(t.Context(), func() { reported.Add(1) })
	return func(n int32) {
		t.Helper()
		time.Sleep(Interval + 2*Settle)
		synctest.Wait()
		if got := reported.Load(); got != n {
			t.Errorf("%d reports, expected %d", got, n)
		}
	}
}

func TestAChangeIsReportedOnceWithinTheInterval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	synctest.Test(t, func(t *testing.T) {
		want := running(t, New(path))
		for i := range int32(3) {
			time.Sleep(time.Second)
			write(t, path, time.Now().String())
			want(i + 1)
		}
	})
}

func TestFilesThatComeLaterAreWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	synctest.Test(t, func(t *testing.T) {
		f := New()
		want := running(t, f)
		for i := range int32(2) {
			time.Sleep(time.Hour)
			f.Set([]string{path})
			write(t, path, time.Now().String())
			want(i + 1)
			f.Set(nil)
		}
	})
}

package filewatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

func pollOnly() (*notices, error) { return nil, nil }

// patience bounds the wait for a notice of the kernel. It is far from what a
// notice takes and from the look that comes without one.
const patience = Fallback / 3

// following runs f and returns a function that awaits the next change.
func following(t *testing.T, f *Files) (await func(what string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reported, ended := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func() { reported <- struct{}{} })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	time.Sleep(3 * Settle) // the first look needs no notice
	return func(what string) {
		t.Helper()
		select {
		case <-reported:
		case <-time.After(patience):
			t.Fatalf("%s: not reported within %v", what, patience)
		}
	}
}

func do(t *testing.T, steps ...error) {
	t.Helper()
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".new", content)
	do(t, os.Rename(path+".new", path))
}

func TestKernelReportsRenameOverAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	write(t, path, "a")
	await := following(t, New(noWarning(t), path))
	for _, content := range []string{"ab", "abc", "abcd"} {
		replace(t, path, content)
		await("renamed over, " + content)
	}
}

func TestKernelReportsAFileThatDidNotExist(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mounted", "later")
	path := filepath.Join(dir, "env")
	await := following(t, New(noWarning(t), path))
	do(t, os.MkdirAll(dir, 0o700))
	write(t, path, "a")
	await("created with its directories")
	do(t, os.Remove(path))
	await("removed")
	write(t, path, "ab")
	await("created again")
}

// As the kubelet does it, several times: the directory of the old version is
// removed afterwards, and with it what was subscribed to within it.
func TestKernelReportsConfigMapSwap(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	version := func(name, content string) {
		t.Helper()
		do(t, os.Mkdir(at(name), 0o700))
		write(t, filepath.Join(at(name), "env"), content)
		do(t, os.Symlink(name, at("..data_tmp")), os.Rename(at("..data_tmp"), at("..data")))
	}
	version("..1", "a")
	do(t, os.Symlink("..data/env", at("env")))
	await := following(t, New(noWarning(t), at("env")))
	for _, names := range [][2]string{{"..1", "..2"}, {"..2", "..3"}, {"..3", "..4"}} {
		version(names[1], "a")
		await("swapped to " + names[1])
		do(t, os.RemoveAll(at(names[0])))
	}
}

// What a link leads to is in another directory: both are watched.
func TestKernelReportsWhatALinkLeadsTo(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	do(t, os.Mkdir(at("a"), 0o700), os.Mkdir(at("b"), 0o700), os.Mkdir(at("live"), 0o700), os.Symlink("a", at("here")), os.Symlink("../here/cert", at("live/cert")))
	write(t, at("a/cert"), "a")
	write(t, at("b/cert"), "b")
	await := following(t, New(noWarning(t), at("live/cert")))
	replace(t, at("a/cert"), "aa")
	await("target replaced")
	do(t, os.Symlink("b", at("there")), os.Rename(at("there"), at("here")))
	await("a link to a directory swapped")
	replace(t, at("b/cert"), "bb")
	await("new target replaced")
}

func TestKernelReportsWhatIsListedLater(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "env"), filepath.Join(t.TempDir(), "env")
	f := New(noWarning(t))
	await := following(t, f)
	f.Set([]string{a})
	write(t, a, "a")
	await("listed first")
	f.Set([]string{a, b})
	write(t, b, "b")
	await("listed later")
}

// A file that is mounted alone into a container is written where its directory
// there does not see it, as one with a second name is.
func TestKernelReportsAFileWrittenElsewhere(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "env"), filepath.Join(t.TempDir(), "env")
	write(t, path, "a")
	do(t, os.Link(path, other))
	await := following(t, New(noWarning(t), path))
	write(t, other, "ab")
	await("written by its other name")
}

func TestALoopOfLinksEnds(t *testing.T) {
	dir := t.TempDir()
	do(t, os.Symlink("b", filepath.Join(dir, "a")), os.Symlink("a", filepath.Join(dir, "b")))
	if p := placesOf([]string{filepath.Join(dir, "a")}); len(p.watched) != 1 {
		t.Errorf("%v", p.watched)
	}
}

// Within Settle all notices are one, and a change is reported once.
func TestBurstIsOneNotice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	synctest.Test(t, func(t *testing.T) {
		events := make(chan fsnotify.Event)
		var follows, reported atomic.Int32
		f := New(noWarning(t), path)
		f.start = func() (*notices, error) {
			return &notices{events: events, follow: func(places) error { follows.Add(1); return nil }, close: func() {}}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx, func() { reported.Add(1) })
		time.Sleep(2 * Settle)
		synctest.Wait()
		follows.Store(0)
		write(t, path, "a")
		for range 50 {
			events <- fsnotify.Event{Name: path}
			time.Sleep(Settle / 51)
		}
		time.Sleep(3 * Settle)
		synctest.Wait()
		if follows.Load() != 2 || reported.Load() != 1 { // one look that finds it changed, one that finds it settled
			t.Errorf("%d looks, %d reports", follows.Load(), reported.Load())
		}
		for range 10 { // it is written all the time
			write(t, path, "a")
			events <- fsnotify.Event{Name: path}
			time.Sleep(Settle - 1)
			events <- fsnotify.Event{Name: path}
			time.Sleep(Settle - 1)
		}
		if synctest.Wait(); follows.Load() < 10 {
			t.Errorf("%d looks while notices do not end", follows.Load())
		}
		time.Sleep(3 * Settle)
		synctest.Wait()
		follows.Store(0)
		for range 10 {
			events <- fsnotify.Event{Name: filepath.Join(filepath.Dir(path), "log")}
			time.Sleep(2 * Settle)
		}
		if synctest.Wait(); follows.Load() != 0 {
			t.Errorf("%d looks for a file nearby", follows.Load())
		}
		reported.Store(1)
		write(t, path, "ab") // on a file system without notices
		time.Sleep(Fallback + 2*Settle)
		synctest.Wait()
		if reported.Load() != 2 {
			t.Error("not found without a notice")
		}
	})
}

func TestPollsAndWarnsOnceWithoutTheKernelsHelp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	failure := errors.New("too many open files")
	for name, start := range map[string]func() (*notices, error){
		"cannot start": func() (*notices, error) { return nil, failure },
		"cannot follow": func() (*notices, error) {
			return &notices{follow: func(places) error { return failure }, close: func() {}}, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var warnings, reported atomic.Int32
			f := New(func(error) { warnings.Add(1) }, path)
			f.start = start
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go f.Run(ctx, func() { reported.Add(1) })
			for i := range 3 {
				time.Sleep(time.Second)
				write(t, path, time.Now().String())
				time.Sleep(3 * Interval)
				synctest.Wait()
				if int(reported.Load()) != i+1 {
					t.Errorf("%s: %d reports, expected %d", name, reported.Load(), i+1)
				}
				f.Set(nil)
				synctest.Wait()
				f.Set([]string{path})
			}
			if warnings.Load() != 1 {
				t.Errorf("%s: %d warnings", name, warnings.Load())
			}
		})
	}
}

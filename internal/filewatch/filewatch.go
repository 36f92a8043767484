// Package filewatch reports when files have changed.
//
// Make a Files with New, call Run in a goroutine, and Set whenever the list of files changes.
// Every Interval, Run compares the files with their previous state; without files it sleeps.
// Polling works with every file system and every way of changing a file: an editor renames it, the
// kubelet swaps a symbolic link two directories above it, another machine writes it, or it does not
// exist yet.
//
// A change is reported after it has settled, that is, after two equal checks in a row. So a
// half-written file is seldom read. The reader must still reject a file that it cannot use; it is
// called again when the file changes.
//
// fsnotify is not used: with it this took 384 lines and 61 kB of the program, because network file systems
// and a full inotify table still need the comparison.
package filewatch

import (
	"context"
	"os"
	"sync"
	"time"
)

const (
	// Interval is the time between two checks.
	Interval = 5 * time.Second
	// Settle is the time until the next check after a check that found a change.
	Settle = 100 * time.Millisecond
)

// Files watches a list of files. It is safe for concurrent use.
type Files struct {
	some chan struct{} // has a value when the list may have become other than empty

	mu    sync.Mutex // guards files
	files map[string]*state
}

type state struct {
	reported, seen mark
}

// mark identifies a version of a file. The zero value is a missing file.
type mark struct {
	exists bool
	size   int64
	mtime  time.Time
	info   os.FileInfo // for os.SameFile
}

func (p mark) equal(q mark) bool {
	if !p.exists || !q.exists {
		return p.exists == q.exists
	}
	return p.size == q.size && p.mtime.Equal(q.mtime) && os.SameFile(p.info, q.info)
}

func markOf(path string) mark {
	info, err := os.Stat(path)
	if err != nil {
		return mark{}
	}
	return mark{exists: true, size: info.Size(), mtime: info.ModTime(), info: info}
}

// New watches the files as they are now.
func New(paths ...string) *Files {
	f := &Files{some: make(chan struct{}, 1)}
	f.Set(paths)
	return f
}

// Set replaces the list. Files that stay on it keep their recorded state; the present state of new
// ones counts as reported.
func (f *Files) Set(paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := make(map[string]*state, len(paths))
	for _, path := range paths {
		known := f.files[path]
		if known == nil {
			now := markOf(path)
			known = &state{reported: now, seen: now}
		}
		files[path] = known
	}
	f.files = files
	select {
	case f.some <- struct{}{}:
	default:
	}
}

func (f *Files) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.files) == 0
}

// look compares the files with their recorded state. It returns whether a change has settled since
// it last returned so, and whether a file changed since the last check.
func (f *Files) look() (settled, moving bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := false
	for path, s := range f.files {
		now := markOf(path)
		moving = moving || !now.equal(s.seen)
		s.seen = now
		changed = changed || !now.equal(s.reported)
	}
	if !changed || moving {
		return false, moving
	}
	for _, s := range f.files {
		s.reported = s.seen
	}
	return true, false
}

// Run watches until ctx ends. It calls changed, from its own goroutine, for every change.
func (f *Files) Run(ctx context.Context, changed func()) {
	timer := time.NewTimer(Interval)
	defer timer.Stop()
	for {
		if f.empty() { // an idle process does not wake up for nothing
			select {
			case <-ctx.Done():
				return
			case <-f.some:
			}
			timer.Reset(Interval)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		settled, moving := f.look()
		if settled {
			changed()
		}
		next := Interval
		if moving {
			next = Settle
		}
		timer.Reset(next)
	}
}

// Package watch tells when files have changed, by looking at them.
//
// Make a Files with New, call Run in a goroutine, and Set whenever the list of
// files changes. Looking once a second was chosen over the kernel's change
// notices because it needs nothing else to be right: a ConfigMap is changed by
// swapping a symlink two directories up, an editor renames, a network or
// overlay file system sends no notices at all, and a file may not be there
// yet. All of that is one stat a second per file, which follows links. What is
// promised is that a change is told once it has settled: after two looks in a
// row that saw the same, so a file half written is not read, mostly. A reader
// still has to refuse what it cannot use, and is called again when it changes.
package watch

import (
	"context"
	"os"
	"sync"
	"time"
)

// Interval is the time between two looks.
const Interval = time.Second

// Files watches a list of files. Safe for concurrent use.
type Files struct {
	mu    sync.Mutex // guards all below
	files map[string]*state

	listed chan struct{} // Set put the first file on the list; room for one
}

type state struct {
	told, seen mark
}

// mark is what tells one version of a file from another. The zero value is a
// file that is not there.
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

func look(path string) mark {
	info, err := os.Stat(path)
	if err != nil {
		return mark{}
	}
	return mark{exists: true, size: info.Size(), mtime: info.ModTime(), info: info}
}

// New watches the files as they are now.
func New(paths ...string) *Files {
	f := &Files{listed: make(chan struct{}, 1)}
	f.Set(paths)
	return f
}

// Set replaces the list. Files that were on it before keep what is known of
// them; of new ones the present state is taken as told.
func (f *Files) Set(paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := make(map[string]*state, len(paths))
	for _, path := range paths {
		known := f.files[path]
		if known == nil {
			now := look(path)
			known = &state{told: now, seen: now}
		}
		files[path] = known
	}
	f.files = files
	if len(files) > 0 {
		select {
		case f.listed <- struct{}{}:
		default:
		}
	}
}

func (f *Files) none() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.files) == 0
}

// Look looks once and reports whether a change has settled since it last said
// so.
func (f *Files) Look() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, moving := false, false
	for path, s := range f.files {
		now := look(path)
		moving = moving || !now.equal(s.seen)
		s.seen = now
		changed = changed || !now.equal(s.told)
	}
	if !changed || moving {
		return false
	}
	for _, s := range f.files {
		s.told = s.seen
	}
	return true
}

var newTicker = time.NewTicker // a test counts them

// Run looks every Interval until ctx ends and calls changed, from its own
// goroutine, for every change. Without files it sleeps until Set lists one.
func (f *Files) Run(ctx context.Context, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.listed:
			f.lookOn(ctx, changed)
		}
	}
}

// lookOn looks until ctx ends or there are no files any more.
func (f *Files) lookOn(ctx context.Context, changed func()) {
	ticker := newTicker(Interval)
	defer ticker.Stop()
	for !f.none() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if f.Look() {
				changed()
			}
		}
	}
}

// Package filewatch reports when files have changed.
//
// Make a Files with New, call Run in a goroutine, and Set whenever the list of
// files changes. Run sleeps until the kernel reports a change in a directory
// that decides what one of the files is, then compares the files with what they
// were. It watches directories because a file is seldom written in place: an
// editor renames, the kubelet swaps a symbolic link two directories up, and a
// file may not exist yet.
//
// A change is reported once it has settled: after two looks in a row that found
// the same. So a file half written is seldom read. A reader still has to refuse
// what it cannot use, and is called again when the file changes.
//
// Some file systems report nothing: NFS, when another machine writes. So Run
// also looks once a minute. Where the kernel reports nothing at all, Run looks
// once a second, and says so once. See docs/decisions/0024-file-notices.md.
package filewatch

import (
	"context"
	"os"
	"sync"
	"time"
)

const (
	// Settle is the time from the first notice to the look at the files, and
	// between two looks while they change. All notices within it are one.
	Settle = 100 * time.Millisecond
	// Fallback is the time between two looks that no notice asked for.
	Fallback = time.Minute
	// Interval is the time between two looks where there are no notices.
	Interval = time.Second
)

// Files watches a list of files. Safe for concurrent use.
type Files struct {
	warn   func(error)
	warned bool                     // for Run only
	start  func() (*notices, error) // nil notices: poll only

	mu    sync.Mutex // guards all below
	files map[string]*state

	listed chan struct{} // Set changed the list; room for one
}

type state struct {
	reported, seen mark
}

// mark distinguishes one version of a file from another. The zero value is a
// file that does not exist.
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

// New watches the files as they are now. Run calls warn, once, if the kernel
// cannot report changes.
func New(warn func(error), paths ...string) *Files {
	f := &Files{warn: warn, start: startNotices, listed: make(chan struct{}, 1)}
	f.Set(paths)
	return f
}

// Set replaces the list. Files that were on it before keep what is known of
// them; the present state of new ones counts as reported.
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
	case f.listed <- struct{}{}:
	default:
	}
}

func (f *Files) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	paths := make([]string, 0, len(f.files))
	for path := range f.files {
		paths = append(paths, path)
	}
	return paths
}

// look compares the files with what they were. It returns whether a change has
// settled since it last returned so, and whether a file changed since the last
// look.
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

// Run watches until ctx ends and calls changed, from its own goroutine, for
// every change. Without files it sleeps until Set lists one.
func (f *Files) Run(ctx context.Context, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.listed:
			if len(f.paths()) > 0 {
				f.watch(ctx, changed)
			}
		}
	}
}

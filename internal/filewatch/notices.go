package filewatch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// notices are the kernel's reports about directories and files.
type notices struct {
	events   <-chan fsnotify.Event
	failures <-chan error
	follow   func(p places) error // replaces what is subscribed to
	close    func()
}

func startNotices() (*notices, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("subscribe to file changes: %w", err)
	}
	return &notices{
		events: w.Events, failures: w.Errors,
		follow: func(p places) error { return follow(w, p.watched) },
		close:  func() { _ = w.Close() }, // at worst it was already closed
	}, nil
}

func follow(w *fsnotify.Watcher, wanted map[string]bool) error {
	for _, place := range w.WatchList() {
		if !wanted[place] {
			_ = w.Remove(place) // the kernel may have ended it
		}
	}
	for place := range wanted {
		// Adding again is cheap, and needed if a file was replaced.
		if err := w.Add(place); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("subscribe to changes of %s: %w", place, err)
		}
	}
	return nil
}

// maxLinks is how many symbolic links Linux follows in one path.
const maxLinks = 40

// places decide what the files are.
type places struct {
	watched map[string]bool // to subscribe to
	// entries are the last path elements that a notice must name; other notices are about
	// unrelated files. The kernel may know the directory by another path.
	entries map[string]bool
}

func placesOf(paths []string) places {
	p := places{watched: map[string]bool{}, entries: map[string]bool{}}
	for _, path := range paths {
		p.add(path)
	}
	return p
}

// add adds the directories of the file and of each symbolic link on the way to it. It also
// adds the file: a single file that is mounted into a container is written in place,
// without a notice for its directory.
func (p *places) add(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // the working directory is gone
	}
	for range maxLinks {
		prefix, target := firstLink(path)
		dir := filepath.Dir(prefix)
		p.watched[dir], p.entries[filepath.Base(dir)], p.entries[filepath.Base(prefix)] = true, true, true
		if target == "" {
			if prefix == path {
				p.watched[path] = true
			}
			return
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = filepath.Join(target, path[len(prefix):])
	}
}

// firstLink returns the shortest prefix of path that is a symbolic link, with
// its target. Without one it returns the shortest prefix that does not exist,
// or path.
func firstLink(path string) (prefix, target string) {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && !os.IsPathSeparator(path[end]) {
			continue
		}
		prefix = path[:end]
		info, err := os.Lstat(prefix)
		if err != nil {
			return prefix, ""
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(prefix); err == nil {
				return prefix, target
			}
		}
	}
	return path, ""
}

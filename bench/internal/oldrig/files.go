package oldrig

import (
	"os"
	"path/filepath"
)

// file is a temporary file in a directory of its own.
type file struct{ path, dir string }

func tempFile(name, text string) (*file, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	f := &file{path: filepath.Join(dir, name), dir: dir}
	// nginx's workers run as another user where nginx was started by root.
	if err = os.Chmod(dir, 0o755); err == nil {
		err = f.write(text)
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

func (f *file) write(text string) error { return os.WriteFile(f.path, []byte(text), 0o644) }

func (f *file) remove() { _ = os.RemoveAll(f.dir) }

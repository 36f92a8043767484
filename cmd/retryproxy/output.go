package main

import "github.com/retryproxy/retryproxy/internal/terminal"

import "io"

// checkedWriter remembers the first write error. Commands that print do not check each write, and
// the disk may be full.
type checkedWriter struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// checked returns o with a standard output that remembers errors. A terminal is not wrapped, so
// that it is still recognised as one.
func (o *outside) checked() (*outside, *checkedWriter) {
	out := &checkedWriter{Writer: o.stdout}
	if terminal.Is(o.stdout) {
		return o, out
	}
	also := *o
	also.stdout = out
	return &also, out
}

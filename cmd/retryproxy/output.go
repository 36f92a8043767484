package main

import "github.com/retryproxy/retryproxy/internal/terminal"

import "io"

// checkedWriter remembers the first error of writing: a command that prints does
// not look at each write, and its output may be a full disk.
type checkedWriter struct {
	io.Writer
	err error
}

// Write satisfies io.Writer.
func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// checked is o with a standard output that remembers errors. A terminal is left
// as it is, so that it is still recognised as one.
func (o *outside) checked() (*outside, *checkedWriter) {
	out := &checkedWriter{Writer: o.stdout}
	if terminal.Is(o.stdout) {
		return o, out
	}
	also := *o
	also.stdout = out
	return &also, out
}

// Package logtest has the log that a test reads while the program under test still writes to it.
package logtest

import (
	"strings"
	"sync"
)

// Buffer keeps what is written to it. The zero value is empty. It is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Sync makes a Buffer a sink of zap. There is nothing to flush.
func (b *Buffer) Sync() error { return nil }

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Package show tells people and files what a benchmark does and found.
package show

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// Progress shows one line at a time: in place on a terminal, else one after
// the other. It is safe for concurrent use.
type Progress struct {
	mu      sync.Mutex
	w       io.Writer
	inPlace bool
	open    bool // a line without its end is shown
}

// NewProgress writes to w. It writes in place when w is a terminal and neither
// NO_COLOR nor a dumb terminal asks for plain text.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w, inPlace: isTerminal(w)} }

// isTerminal says whether control characters may be written to w.
func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Line shows the state of things, in place of the one before where it can.
func (p *Progress) Line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.inPlace {
		fmt.Fprintln(p.w, text)
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	p.open = true
}

// End ends the line shown in place.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		fmt.Fprintln(p.w)
		p.open = false
	}
}

// Clear removes the line shown in place.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.open = false
	}
}

// Say shows a line that stays.
func (p *Progress) Say(text string) {
	p.End()
	fmt.Fprintln(p.w, text)
}

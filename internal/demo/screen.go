package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/terminal"
)

// How often progress is shown.
const (
	redrawEvery = 250 * time.Millisecond
	lineEvery   = time.Second
)

// screen shows progress: on a terminal as a table that is redrawn in place,
// elsewhere as a plain line a second. Not safe for concurrent use.
type screen struct {
	out   io.Writer
	style style
	live  bool
	drawn int // lines of the table on the screen
}

// newScreen looks at what out is. NO_COLOR and TERM=dumb are obeyed: the first
// leaves out colours, the second everything but plain lines.
func newScreen(out io.Writer, getenv func(string) string) *screen {
	live := terminal.Is(out) && getenv("TERM") != "dumb"
	return &screen{out: out, live: live, style: style{color: live && getenv("NO_COLOR") == ""}}
}

func (s *screen) every() time.Duration {
	if s.live {
		return redrawEvery
	}
	return lineEvery
}

// print writes text below everything. A write error has no one to be told to.
func (s *screen) print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
}

// progress shows r in place of the progress shown before.
func (s *screen) progress(r *report) {
	if !s.live {
		s.print("%s", r.line())
		return
	}
	table := r.live(s.style)
	s.erase()
	// Lines that are too long for the screen are cut, not wrapped, so that
	// erase finds as many as there are here.
	s.print("\x1b[?7l%s\x1b[?7h", table)
	s.drawn = strings.Count(table, "\n")
}

// erase takes the table from the screen: up to its first line, and clear all
// that is below (ECMA-48 CPL and ED).
func (s *screen) erase() {
	if s.drawn > 0 {
		s.print("\x1b[%dF\x1b[J", s.drawn)
	}
	s.drawn = 0
}

// finish shows r as the last word.
func (s *screen) finish(r *report) {
	s.erase()
	if !s.live {
		s.print("\n")
	}
	s.print("%s", r.final(s.style))
}

// Package terminal finds out what a plot may use of the place that a command
// writes to.
package terminal

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/plot"
)

// plainWidth is for pipes and files, where nobody knows who will read it.
const plainWidth = 80

// Is reports whether w is a terminal.
func Is(w any) bool {
	f, is := w.(*os.File)
	return is && isTerminal(f)
}

// Size is the number of columns and rows of the terminal w as they are now; 0 if
// w is none or does not know.
func Size(w any) (columns, rows int) {
	f, is := w.(*os.File)
	if !is || !isTerminal(f) {
		return 0, 0
	}
	return size(f)
}

// Keys are the keys pressed on the terminal r, each at once and without being
// shown; nil if r is none. stop gives the terminal back as it was; call it once.
func Keys(r any) (keys <-chan byte, stop func()) {
	f, is := r.(*os.File)
	if !is || !isTerminal(f) {
		return nil, func() {}
	}
	return readKeys(f)
}

// Screen says how to draw on w. What is no terminal gets plain ASCII of 80
// columns. A terminal gets its width (or COLUMNS), Unicode where the locale
// says UTF-8, and colours unless NO_COLOR is set (no-color.org) or TERM is
// dumb. Height is left to the plot.
func Screen(w io.Writer, getenv func(string) string) plot.Screen {
	f, is := w.(*os.File)
	if !is || !isTerminal(f) {
		return plot.Screen{Width: plainWidth}
	}
	columns, _ := size(f)
	return of(columns, getenv)
}

// of is Screen for a terminal of that width, 0 for one that is not known.
func of(columns int, getenv func(string) string) plot.Screen {
	s := plot.Screen{Width: columns, Color: getenv("NO_COLOR") == "", Unicode: isUTF8(getenv)}
	if given, err := strconv.Atoi(getenv("COLUMNS")); err == nil && given > 0 {
		s.Width = given
	}
	if s.Width <= 0 {
		s.Width = plainWidth
	}
	if getenv("TERM") == "dumb" {
		s.Color, s.Unicode = false, false
	}
	return s
}

// isUTF8 looks at the variable that decides on characters (POSIX, section 8.2).
func isUTF8(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

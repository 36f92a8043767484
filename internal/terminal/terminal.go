// Package terminal determines what kind of output a command writes to, and its size.
package terminal

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// Screen describes the output of a command.
type Screen struct {
	Width   int  // columns
	Height  int  // rows; 0 means as many as what is drawn needs
	Color   bool // ANSI colours
	Unicode bool // characters beyond ASCII, such as box drawing and Braille
}

// Paint returns text with a colour or weight (ECMA-48 SGR) if the screen has colours. An empty code
// or text changes nothing.
func (s Screen) Paint(code, text string) string {
	if !s.Color || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// plainWidth is the width for pipes and files.
const plainWidth = 80

// Is reports whether w is a terminal, or wraps one.
func Is(w any) bool {
	f, is := unwrap(w).(*os.File)
	return is && term.IsTerminal(int(f.Fd()))
}

// columnsOf returns the width of the terminal w; 0 if w is no terminal or it is unknown.
func columnsOf(w any) int {
	f, is := unwrap(w).(*os.File)
	if !is {
		return 0
	}
	columns, _, _ := term.GetSize(int(f.Fd())) // 0 if it fails
	return columns
}

func unwrap(w any) any {
	if wrapper, is := w.(interface{ Unwrap() io.Writer }); is {
		return unwrap(wrapper.Unwrap())
	}
	return w
}

// ScreenOf returns how to draw on w. If w is no terminal, that is plain ASCII in 80 columns.
// A terminal gets its width (or COLUMNS), Unicode if the locale is UTF-8, and colours
// unless NO_COLOR is set (no-color.org) or TERM is dumb. The height is 0: what is drawn chooses it.
func ScreenOf(w io.Writer, getenv func(string) string) Screen {
	if !Is(w) {
		return Screen{Width: plainWidth}
	}
	return of(columnsOf(w), getenv)
}

// of is ScreenOf for a terminal of that width, 0 if it is unknown.
func of(columns int, getenv func(string) string) Screen {
	s := Screen{Width: columns, Color: getenv("NO_COLOR") == "", Unicode: isUTF8(getenv)}
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

// isUTF8 evaluates the variables that determine the character set (POSIX, section 8.2).
func isUTF8(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

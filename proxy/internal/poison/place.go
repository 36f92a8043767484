//go:build poison || race

package poison

import (
	"fmt"
	"runtime"
)

// Place is where something was taken that has to be given back.
type Place struct{ callers [24]uintptr }

// CallerPlace returns the place of the caller of the function that calls it, or of one further out by skip.
func CallerPlace(skip int) (p Place) {
	runtime.Callers(skip+3, p.callers[:])
	return p
}

// String returns the place and its callers, the innermost first, each with its file and line.
func (p *Place) String() (text string) {
	frames := runtime.CallersFrames(p.callers[:])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.PC != 0 {
			text += fmt.Sprintf("\t%s %s:%d\n", f.Function, f.File, f.Line)
		}
	}
	return text
}

package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/retryproxy/retryproxy/plot"
)

// Document heads all that was measured: without machine, commit and versions a figure means nothing.
type Document struct {
	Args     []string     `json:"args"`
	Commit   string       `json:"commit"`
	Machine  string       `json:"machine"`
	Programs []string     `json:"programs"`
	Figure   *plot.Figure `json:"figure,omitempty"` // which retryproxy-plot can draw again
}

// NewDocument heads what a run with these arguments measures of programs with these versions.
func NewDocument(args []string, programs ...string) Document {
	return Document{Args: args, Commit: Commit(), Machine: Describe(), Programs: programs}
}

// Head prints what the document says of the run.
func (d *Document) Head(w io.Writer) {
	fmt.Fprintf(w, "Machine: %s. Commit %s.\n%s.\n", d.Machine, d.Commit, strings.Join(d.Programs, ". "))
}

// WriteJSON writes all that was measured to a file; "" is none.
func WriteJSON(file string, v any) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o666)
}

// Columns prints rows whose columns are separated by tabs.
func Columns(w io.Writer, rows ...string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(t, row+"\t")
	}
	_ = t.Flush()
	fmt.Fprintln(w)
}

// Describe names system, kernel, processor and cores.
func Describe() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	text := fmt.Sprintf("%s/%s %s, ", runtime.GOOS, runtime.GOARCH, bytes.TrimSpace(kernel))
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	if _, rest, ok := strings.Cut(string(cpu), "model name"); ok {
		model, _, _ := strings.Cut(rest, "\n")
		text += strings.Trim(model, ":\t ") + ", "
	}
	return text + fmt.Sprintf("%d cores", runtime.NumCPU())
}

// Commit is what the running program was built from; "unknown" without -buildvcs=true.
func Commit() string {
	revision, changed := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = " with changes"
			}
		}
	}
	return revision + changed
}

// Version is the first line that a program prints about itself; its name if it prints none.
func Version(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		return program
	}
	return line
}

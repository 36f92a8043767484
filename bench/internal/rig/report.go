package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/retryproxy/retryproxy/ctl/plot"
)

// Document is the head of a report. Figures mean nothing without machine, commit and versions.
type Document struct {
	Args     []string     `json:"args"`
	Commit   string       `json:"commit"`
	Machine  string       `json:"machine"`
	Programs []string     `json:"programs"`
	Figure   *plot.Figure `json:"figure,omitempty"` // for retryproxyctl plot
}

// NewDocument returns the head for a run with these arguments and programs.
func NewDocument(args []string, programs ...string) Document {
	return Document{Args: args, Commit: Commit(), Machine: Describe(), Programs: programs}
}

// Head writes the head.
func (d *Document) Head(w io.Writer) {
	fmt.Fprintf(w, "Machine: %s. Commit %s.\n%s.\n", d.Machine, d.Commit, strings.Join(d.Programs, ". "))
}

// WriteJSON writes v to a file unless its name is "".
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

// Columns writes rows with tab-separated columns.
func Columns(w io.Writer, rows ...string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(t, row+"\t")
	}
	_ = t.Flush()
	fmt.Fprintln(w)
}

// Describe returns system, version of the kernel, processor and cores.
func Describe() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	kernel, _, _ = bytes.Cut(bytes.TrimSpace(kernel), []byte("-")) // without the distributor's suffix
	text := fmt.Sprintf("%s/%s %s, ", runtime.GOOS, runtime.GOARCH, kernel)
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	if _, rest, ok := strings.Cut(string(cpu), "model name"); ok {
		model, _, _ := strings.Cut(rest, "\n")
		text += strings.Trim(model, ":\t ") + ", "
	}
	return text + fmt.Sprintf("%d cores", runtime.NumCPU())
}

// Commit returns the commit of the running program; "unknown" without -buildvcs=true.
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

// Version returns the first line that a program prints; its name if it prints none.
func Version(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		return program
	}
	return line
}

// mostPerKind bounds the findings of one kind that are kept as text.
const mostPerKind = 10

// Findings collects violations and counts. The zero value is ready for use. It is safe for concurrent
// use.
type Findings struct {
	mu    sync.Mutex // guards what follows
	n     int
	kinds map[string]int
	first []string

	counts  map[string]int64
	longest map[string]time.Duration
}

// Add adds a violation. Its kind is the format up to the first colon.
func (f *Findings) Add(format string, a ...any) {
	kind, _, _ := strings.Cut(format, ":")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil {
		f.kinds = map[string]int{}
	}
	f.n++
	if f.kinds[kind]++; f.kinds[kind] <= mostPerKind {
		f.first = append(f.first, fmt.Sprintf(format, a...))
	}
}

// Count adds n to what is counted under a name.
func (f *Findings) Count(what string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[string]int64{}
	}
	f.counts[what] += n
}

// Counted returns the count of a name.
func (f *Findings) Counted(what string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[what]
}

// Counts returns a copy of all counts.
func (f *Findings) Counts() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// AtLeast adds a violation if fewer than n were counted: a judge that saw too little proves nothing.
func (f *Findings) AtLeast(n int64, what string) {
	if got := f.Counted(what); got < n {
		f.Add("only %d %s: nothing can be said", got, what)
	}
}

// Longest records how long something took. It returns the longest time recorded under the name.
func (f *Findings) Longest(what string, d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.longest == nil {
		f.longest = map[string]time.Duration{}
	}
	f.longest[what] = max(f.longest[what], d)
	return f.longest[what]
}

// N returns the number of violations.
func (f *Findings) N() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Kinds returns the kinds of the violations, sorted.
func (f *Findings) Kinds() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.kinds))
}

// All returns the first violations of each kind, and the totals of the kinds that had more.
func (f *Findings) All() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.first)
	for _, kind := range slices.Sorted(maps.Keys(f.kinds)) {
		if n := f.kinds[kind]; n > mostPerKind {
			all = append(all, fmt.Sprintf("%s: %d in all", kind, n))
		}
	}
	return all
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// document is everything that was measured.
type document struct {
	rig.Document
	Seconds float64   `json:"seconds"` // of all rows
	Rows    []*result `json:"rows"`
}

// result is a row that was played.
type result struct {
	row   *row
	Name  string               `json:"name"`
	How   string               `json:"how"`
	Arms  map[string]*measures `json:"arms"`
	Goals []verdict            `json:"goals,omitempty"`
}

// read reads and judges rows that were played before. Of a row that is in several files, the last one counts.
func (d *document) read(files []string, some []*row, stdout io.Writer) error {
	played := map[string]*result{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var of document
		if err := json.Unmarshal(b, &of); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		d.Document = of.Document
		d.Seconds += of.Seconds
		for _, r := range of.Rows {
			played[r.Name] = r
		}
	}
	for _, row := range some {
		if r := played[row.name]; r != nil {
			r.row, r.How, r.Goals = row, row.how, nil
			r.judge()
			r.print(stdout)
			d.Rows = append(d.Rows, r)
		}
	}
	return nil
}

// complete reports whether all rows are there in all arms, with their goals.
func (d *document) complete() bool {
	return len(d.Rows) == len(rows()) && !slices.ContainsFunc(d.Rows, func(r *result) bool { return len(r.Arms) < len(arms) || len(r.Goals) == 0 })
}

// verdict is a goal that was judged.
type verdict struct {
	Text string `json:"goal"`
	Met  bool   `json:"met"`
}

// judge judges all goals of the row. Without the arm on there is nothing to judge.
func (r *result) judge() {
	m := r.Arms[on]
	if m == nil {
		return
	}
	for _, g := range append(r.row.goals[:len(r.row.goals):len(r.row.goals)], r.row.harmless(), something()) {
		r.Goals = append(r.Goals, verdict{g.text, g.met(m, r.Arms[off])})
	}
}

// something is a goal without which the others prove nothing.
func something() goal {
	return goal{"requests were sent", func(m, _ *measures) bool { return m.Requests > 0 }}
}

// missed returns the texts of the goals that were missed.
func (r *result) missed() (all []string) {
	for _, g := range r.Goals {
		if !g.Met {
			all = append(all, g.Text)
		}
	}
	return all
}

func (d *document) missed() (n int) {
	for _, r := range d.Rows {
		n += len(r.missed())
	}
	return n
}

func (d *document) goals() (n int) {
	for _, r := range d.Rows {
		n += len(r.Goals)
	}
	return n
}

// verdict returns the row's verdict in words.
func (r *result) verdict() string {
	switch missed := r.missed(); {
	case len(missed) > 0:
		return "missed: " + strings.Join(missed, "; ")
	case len(r.Goals) > 0:
		return "met"
	}
	return "not judged"
}

// cells returns the figures of an arm, in the order of columns.
func (m *measures) cells() []string {
	lost := "–"
	if m.Lost != nil {
		lost = fmt.Sprint(*m.Lost, " of ", m.Requests)
	}
	return []string{percent(&m.During), percent(m.After), m.after(m.Again), m.after(m.Errors), fmt.Sprint(m.Peak), fmt.Sprintf("%.2f", m.Attempts), lost}
}

var columns = []string{"good during", "good after", "95 % good", "errors over", "peak", "attempts", "lost"}

func percent(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100**share)
}

// after describes when something happened after the fault.
func (m *measures) after(s *float64) string {
	switch {
	case !m.Timed:
		return "–"
	case s == nil:
		return "never"
	}
	return fmt.Sprintf("%.1f s", *s)
}

// print writes the row.
func (r *result) print(out io.Writer) {
	fmt.Fprintf(out, "%s: %s\n", r.Name, r.verdict())
	rows := []string{"\t" + strings.Join(columns, "\t")}
	for _, arm := range arms {
		if m := r.Arms[arm]; m != nil {
			rows = append(rows, arm+"\t"+strings.Join(m.cells(), "\t"))
		}
	}
	rig.Columns(out, rows...)
	for _, arm := range arms {
		if m := r.Arms[arm]; m != nil {
			fmt.Fprintf(out, "  %-8s %v\n", arm, m.Counts)
		}
	}
	fmt.Fprintln(out)
}

// The table stands in the page between these lines.
const (
	tableBegin = "<!-- begin scorecard, written by make scorecard -->\n"
	tableEnd   = "<!-- end scorecard -->"
)

// writeDocs replaces the table in a page. An empty name means no page.
func (d *document) writeDocs(page string) error {
	if page == "" {
		return nil
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		return fmt.Errorf("%s: no lines %q and %q", page, strings.TrimSpace(tableBegin), tableEnd)
	}
	return os.WriteFile(page, []byte(before+tableBegin+d.table()+tableEnd+after), 0o644) //nolint:gosec // documentation is public
}

// table returns the table of all rows in Markdown. A cell has the figures of the arms in their order.
func (d *document) table() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d of %d goals are met. All rows took %.0f s. ", d.goals()-d.missed(), d.goals(), d.Seconds)
	d.Head(&b)
	fmt.Fprintf(&b, "\n| case | %s | goals |\n|---%s|---|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
	for _, r := range d.Rows {
		fmt.Fprintf(&b, "| **%s**: %s", r.Name, r.How)
		for i := range columns {
			b.WriteString(" | ")
			var cells []string
			for _, arm := range arms {
				cell := "not played"
				if m := r.Arms[arm]; m != nil {
					cell = m.cells()[i]
				}
				cells = append(cells, cell)
			}
			b.WriteString(strings.Join(cells, "<br>"))
		}
		fmt.Fprintf(&b, " | %s |\n", r.verdict())
	}
	return b.String()
}

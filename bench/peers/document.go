package main

import (
	"fmt"
	"io"

	"github.com/retryproxy/retryproxy/bench/internal/machine"
	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// document is everything that was measured.
type document struct {
	Args    []string  `json:"args"`
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
	Proxies []string  `json:"proxies"` // what the programs say that they are
	Results []*result `json:"results"`
}

func newDocument(proxy string) *document {
	return &document{
		Commit: machine.Commit(), Machine: machine.Describe(),
		Proxies: []string{machine.Version("haproxy", "-v"), machine.Version("nginx", "-v"), machine.Version(proxy, "version")},
	}
}

func (d *document) missed() int {
	n := 0
	for _, r := range d.Results {
		if !r.Met {
			n++
		}
	}
	return n
}

// tell prints the table, as Markdown, and writes the file.
func (d *document) tell(w io.Writer, file string) error {
	fmt.Fprintf(w, "Machine: %s. Commit %s.\n", d.Machine, d.Commit)
	for _, p := range d.Proxies {
		fmt.Fprintf(w, "%s.\n", p)
	}
	fmt.Fprintf(w, "Median of the rounds; in brackets the median, lowest and highest ratio to HAProxy within a round.\n\n")
	fmt.Fprintf(w, "| work | unit | HAProxy | nginx | retryproxy | goal | |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range d.Results {
		met := "missed"
		if r.Met {
			met = "met"
		}
		work := r.Work
		if r.Note != "" {
			work += " (" + r.Note + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", work, r.Unit, r.cell(order[0]), r.cell(order[1]), r.cell(order[2]), r.Goal, met)
	}
	if file == "" {
		return nil
	}
	return show.JSON(file, d)
}

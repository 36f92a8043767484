package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// counts is what was counted over a number of requests.
type counts struct {
	requests   int
	byFunction map[string]int64
}

// row is a line of a table.
type row struct {
	name  string
	count float64 // per request
}

// rows gives the counts for each request, the largest first, added up by what name makes of a function's.
func (c *counts) rows(name func(function string) string) []row {
	sums := map[string]int64{}
	for function, n := range c.byFunction {
		sums[name(function)] += n
	}
	var all []row
	for _, k := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, row{k, float64(sums[k]) / float64(c.requests)})
	}
	slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(b.count, a.count) })
	return all
}

// packageOf is the import path in a function's name, without this module's.
func packageOf(function string) string {
	slash := strings.LastIndexByte(cutAt(function, "["), '/') + 1
	dot := strings.IndexByte(function[slash:], '.')
	if dot < 0 {
		return "others"
	}
	return short(function[:slash+dot])
}

// short leaves this module's name out.
func short(name string) string {
	return strings.ReplaceAll(name, "github.com/retryproxy/retryproxy/", "")
}

// cutAt is s up to sep.
func cutAt(s, sep string) string {
	before, _, _ := strings.Cut(s, sep)
	return before
}

// tell writes the tables: packages of ten instructions and more, and the costliest functions.
func (c *counts) tell(w io.Writer, functions int) error {
	packages := c.rows(packageOf)
	total := 0.0
	for _, r := range packages {
		total += r.count
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%.0f\tuser instructions a request, of %d requests\n\nby package\n", total, c.requests)
	for _, r := range packages {
		if r.count >= 10 {
			fmt.Fprintf(t, "%.0f\t%s\n", r.count, r.name)
		}
	}
	fmt.Fprintln(t, "\nby function")
	all := c.rows(short)
	for _, r := range all[:min(functions, len(all))] {
		fmt.Fprintf(t, "%.0f\t%s\n", r.count, r.name)
	}
	return t.Flush()
}

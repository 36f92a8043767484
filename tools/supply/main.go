// Command supply tells what the binaries are made of, as far as the binaries
// themselves say (debug/buildinfo): what is listed is what was linked.
//
//	supply licences BINARY...    every module with its licence; fails for one that is not allowed, or not known
//	supply sbom BINARY           a CycloneDX bill of materials on standard output
//
// It is a module of its own, so that the proxy's go.mod does not hold what
// only its release needs. Run it from the repository's root, where `go list`
// finds the modules' sources.
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("expected licences BINARY... or sbom BINARY")
	}
	switch args[0] {
	case "licences":
		return printLicences(args[1:])
	case "sbom":
		return printSBOM(args[1])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// allowed are the licences that a dependency may have: they ask for a notice,
// and nothing of what is linked to it.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

func printLicences(binaries []string) error {
	modules, err := linked(binaries)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	var refused []string
	for _, m := range modules {
		found, err := licences(m)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.Path, m.Version, strings.Join(found, ", "))
		if reviewed[m.Path] != "" {
			continue
		}
		if len(found) == 0 || slices.ContainsFunc(found, func(l string) bool { return !slices.Contains(allowed, l) }) {
			refused = append(refused, m.Path)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(refused) > 0 {
		return fmt.Errorf("licence unknown or not one of %s: %s", strings.Join(allowed, ", "), strings.Join(refused, ", "))
	}
	return nil
}

// linked lists the modules in the binaries, ours left out, each once.
func linked(binaries []string) ([]*debug.Module, error) {
	seen := map[string]*debug.Module{}
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			seen[m.Path] = m
		}
	}
	var all []*debug.Module
	for _, m := range seen {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

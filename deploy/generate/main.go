// Command generate writes those files below deploy/ that come from code or from
// each other: the Grafana dashboard, the PrometheusRule and the chart's copy of
// the rules.
//
//	go run ./deploy/generate [--queries | --query-tests] [DIRECTORY]
//
// DIRECTORY is the root of the tree, by default the current one. With --queries it writes nothing and
// prints the dashboard's queries as a rules file, for promtool to parse. With --query-tests it prints
// the tests of docs/reference/queries.md, for promtool to run.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// main binds the outside world to run and does nothing else.
func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("generate", flag.ContinueOnError)
	f.SetOutput(stderr)
	queries := f.Bool("queries", false, "write nothing, print the dashboard's queries as a rules file for promtool")
	tests := f.Bool("query-tests", false, "write nothing, print the tests of docs/reference/queries.md for promtool")
	if err := f.Parse(args); err != nil || f.NArg() > 1 {
		return 2
	}
	root := "."
	if f.NArg() == 1 {
		root = f.Arg(0)
	}
	switch {
	case *queries:
		return printed(stdout, stderr, queriesAsRules(), nil)
	case *tests:
		text, err := testsOf(root)
		return printed(stdout, stderr, text, err)
	}
	files, err := generate(root)
	if err == nil {
		err = write(root, files)
	}
	if err != nil {
		fmt.Fprintln(stderr, "generate:", err)
		return 1
	}
	return 0
}

// testsOf returns the tests of the documentation below root.
func testsOf(root string) (string, error) {
	tests, err := os.ReadFile(filepath.Join(root, queriesTests))
	if err != nil {
		return "", err
	}
	page, err := os.ReadFile(filepath.Join(root, queriesPage))
	if err != nil {
		return "", err
	}
	return queryTests(string(tests), string(page))
}

// printed prints a text or an error.
func printed(stdout, stderr io.Writer, text string, err error) int {
	if err == nil {
		_, err = io.WriteString(stdout, text)
	}
	if err != nil {
		fmt.Fprintln(stderr, "generate:", err)
		return 1
	}
	return 0
}

// file is one that is generated, its path below the root.
type file struct {
	path    string
	content []byte
}

func generate(root string) ([]file, error) {
	dashboard, err := dashboardJSON()
	if err != nil {
		return nil, err
	}
	rules, err := os.ReadFile(filepath.Join(root, rulesPath))
	if err != nil {
		return nil, err
	}
	rule, err := prometheusRule(rules)
	if err != nil {
		return nil, err
	}
	return []file{{dashboardPath, dashboard}, {prometheusRulePath, rule}, {chartRulesPath, rules}}, nil
}

func write(root string, files []file) error {
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(root, f.path), f.content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

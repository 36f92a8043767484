// Package docs writes the parts of the documentation that follow from the code: the references of
// settings and metrics, the JSON Schema, the tables of retries and of waits, and the names of settings
// in the schema of the Helm chart.
//
// `make docs` writes them, and a test fails if the repository has another version. Never edit them by
// hand.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/retryproxy/retryproxy/policy/apierror"
)

// note heads every generated page.
const note = "<!-- Generated from the code by `make docs`. Do not edit. -->\n\n"

// generated is a generated file, or a generated part of one.
type generated struct {
	path    string // below the repository's root
	content string
	// part is the name of the block in the file that content replaces, between the lines <!-- begin
	// part --> and <!-- end part -->; in JSON, between two objects with a $comment. "" means the
	// whole file.
	part string
}

func everything() ([]generated, error) {
	retries, err := RetryTable()
	return []generated{
		{path: "docs/reference/settings.md", content: Settings()},
		{path: "docs/reference/metrics.md", content: Metrics()},
		{path: "docs/reference/retryproxy.schema.json", content: string(Schema())},
		{path: "docs/reference/retries.md", part: "will my request be retried", content: retries},
		{path: "docs/reference/retries.md", part: "what the retry budget allows", content: BudgetTable()},
		{path: "docs/reference/retry-after.md", part: "headers that tell a wait", content: WaitTable()},
		{path: "docs/reference/retry-after.md", part: "waits in error bodies", content: WaitFormList()},
		{path: "docs/reference/retry-after.md", part: "signs of a spent account", content: SignTable(apierror.Entries())},
		{path: "docs/reference/retry-after.md", part: "signs of a refused credential", content: SignTable(apierror.CredentialEntries())},
		{path: "docs/reference/retry-after.md", part: "signs of a request that is too large", content: SignTable(apierror.TooLargeEntries())},
		{path: "docs/reference/llm.md", part: "rate limits that are learnt", content: LimitTable()},
		{path: "docs/reference/llm.md", part: "paths that name a model", content: PathTable()},
		{path: "docs/reference/llm.md", part: "the llm profile", content: ProfileTable("llm")},
		{path: chartSchema, part: "names of settings, written by make docs", content: ChartSettings()},
	}, err
}

// marks returns the lines before and after the generated part; the last one has no line end, since
// nothing may follow it.
func (g *generated) marks() (begin, end string) {
	if filepath.Ext(g.path) == ".json" {
		return fmt.Sprintf("{ \"$comment\": \"begin %s\" },\n", g.part), fmt.Sprintf("              { \"$comment\": \"end %s\" }", g.part)
	}
	return fmt.Sprintf("<!-- begin %s -->\n", g.part), fmt.Sprintf("<!-- end %s -->", g.part)
}

// renew returns the text of the file with the generated part renewed.
func (g *generated) renew(text string) (string, error) {
	begin, end := g.marks()
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("%s: no lines %q and %q", g.path, strings.TrimSpace(begin), end)
	}
	return before + begin + g.content + end + after, nil
}

// Files returns the current content of all files below root with generated parts, by path.
func Files(root string) (map[string]string, error) {
	all, err := everything()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for i := range all {
		g := &all[i]
		path := filepath.Join(root, g.path)
		if g.part == "" {
			files[path] = g.content
			continue
		}
		if files[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			files[path] = string(text)
		}
		if files[path], err = g.renew(files[path]); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Write renews all files below root.
func Write(root string) error {
	files, err := Files(root)
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // documentation is public
			return err
		}
	}
	return nil
}

// table writes a Markdown table. Cells may hold anything but line ends.
func table(b *strings.Builder, header []string, rows [][]string) {
	row := func(cells []string) {
		b.WriteString("|")
		for _, cell := range cells {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
		}
		b.WriteString("\n")
	}
	row(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, cells := range rows {
		row(cells)
	}
	b.WriteString("\n")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// Package docs writes the parts of the documentation that follow from the code: the references of
// settings and metrics, the glossary, the tables of retries and of waits, and the names of settings
// in the schema of the Helm chart.
//
// Files returns all of them. `make docs` writes them, and a test fails if the repository has another
// version. Never edit them by hand.
package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// note heads every generated file.
const note = "<!-- Generated from the code by `make docs`. Do not edit. -->\n\n"

// File is a generated file, or a generated part of one.
type File struct {
	Path    string // below the repository's root
	Content string
	// Part is the name of the block in the file that Content replaces, between the lines <!-- begin
	// Part --> and <!-- end Part -->; in JSON, between two objects with a $comment. "" means the
	// whole file.
	Part string
}

// marks returns the lines before and after the generated part; the last one has no line end, since
// nothing may follow it.
func (f *File) marks() (begin, end string) {
	if filepath.Ext(f.Path) == ".json" {
		return fmt.Sprintf("{ \"$comment\": \"begin %s\" },\n", f.Part), fmt.Sprintf("              { \"$comment\": \"end %s\" }", f.Part)
	}
	return fmt.Sprintf("<!-- begin %s -->\n", f.Part), fmt.Sprintf("<!-- end %s -->", f.Part)
}

// Files returns everything that is generated.
func Files() ([]File, error) {
	repeated, err := RetryTable()
	if err != nil {
		return nil, err
	}
	return []File{
		{Path: "docs/reference/settings.md", Content: Settings()},
		{Path: "docs/reference/metrics.md", Content: Metrics()},
		{Path: "docs/reference/glossary.md", Content: Glossary()},
		{Path: "docs/reference/retryproxy.schema.json", Content: string(Schema())},
		{Path: "docs/reference/retries.md", Part: "will my request be retried", Content: repeated},
		{Path: "docs/reference/retry-after.md", Part: "headers that tell a wait", Content: WaitTable()},
		{Path: "docs/reference/llm.md", Part: "rate limits that are learnt", Content: LimitTable()},
		{Path: "docs/reference/retry-after.md", Part: "signs of a spent account", Content: SignTable()},
		{Path: "docs/reference/llm.md", Part: "the llm profile", Content: ProfileTable("llm")},
		{Path: chartSchema, Part: "names of settings, written by make docs", Content: ChartSettings()},
	}, nil
}

// Current returns the content of the file with its generated part renewed. A file with such a part
// must exist: otherwise the error matches fs.ErrNotExist.
func (f *File) Current(root string) (string, error) {
	if f.Part == "" {
		return f.Content, nil
	}
	old, err := os.ReadFile(filepath.Join(root, f.Path))
	if err != nil {
		return "", err
	}
	begin, end := f.marks()
	before, rest, found := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("%s: no lines %q and %q", f.Path, strings.TrimSpace(begin), end)
	}
	return before + begin + f.Content + end + after, nil
}

// Stale lists the files below root that differ from Files.
func Stale(root string) ([]string, error) {
	var stale []string
	err := each(root, func(path, want string) error {
		have, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if string(have) != want {
			stale = append(stale, path)
		}
		return nil
	})
	return stale, err
}

// Write renews all files below root.
func Write(root string) error {
	return each(root, func(path, want string) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // documentation is public
			return err
		}
		return os.WriteFile(path, []byte(want), 0o644) //nolint:gosec // likewise
	})
}

func each(root string, do func(path, want string) error) error {
	files, err := Files()
	if err != nil {
		return err
	}
	for i := range files {
		want, err := files[i].Current(root)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a tree without README or chart has no such part
		}
		if err != nil {
			return err
		}
		if err := do(filepath.Join(root, files[i].Path), want); err != nil {
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

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Pages use the words of the glossary. Decision notes keep the words of their time.
func TestDocumentsUseTheWordsOfTheGlossary(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "SECURITY.md")) {
		if filepath.Base(filepath.Dir(page)) == "decisions" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, term := range terms {
			for _, word := range term.avoid {
				if found := regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(word) + `\b.{0,40}`).Find(text); found != nil {
					t.Errorf("%s: %q; the word is %q", page, found, term.word)
				}
			}
		}
	}
}

func TestGlossaryNamesATermOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, term := range terms {
		if seen[term.word] || term.meaning == "" {
			t.Errorf("%q twice, or without a meaning", term.word)
		}
		seen[term.word] = true
	}
}

package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// avoided has words that were used for terms of the glossary, with the terms.
var avoided = map[string]string{
	"callers?": "client", "rescued": "recovered", "gates?": "circuit breaker", "quotas?": "rate limit",
	"cool-?downs?": "rate-limit pause", "replay memory": "retry buffer",
}

// Pages use the words of the glossary.
func TestDocumentsUseTheWordsOfTheGlossary(t *testing.T) {
	for page, text := range pages(t) {
		inDocs := strings.HasPrefix(page, filepath.Join(root, "docs"))
		if !inDocs && page != filepath.Join(root, "README.md") && page != filepath.Join(root, "SECURITY.md") {
			continue
		}
		for word, term := range avoided {
			if found := regexp.MustCompile(`(?i)\b` + word + `\b.{0,40}`).FindString(text); found != "" {
				t.Errorf("%s: %q; the word is %q", page, found, term)
			}
		}
	}
}

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
)

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	link     = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	source   = regexp.MustCompile("`([a-z0-9]+/[A-Za-z0-9_./-]*\\.go)`")
	variable = regexp.MustCompile(`RETRYPROXY(?:_[A-Z0-9]+)+`)
	counter  = regexp.MustCompile(`\b(retryproxy_[a-z0-9_]+?)(?:_bucket|_sum|_count)?\b`)
	dropped  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every relative link of a page points to a file, and its fragment to a heading.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	links := 0
	for page, text := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, fragment := l[1], l[2]
			if strings.Contains(target, ":") {
				continue
			}
			links++
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: no file %s", page, target)
			} else if fragment != "" && !anchors(t, file)[fragment] {
				t.Errorf("%s: no heading #%s in %s", page, fragment, file)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links found", links)
	}
}

// Every Go file that a page names by its path exists. Pages about the data path leave out proxy/.
func TestPagesNameFilesThatExist(t *testing.T) {
	for page, text := range pages(t) {
		for _, f := range source.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(root, f[1]))
			_, inProxy := os.Stat(filepath.Join(root, "proxy", f[1]))
			if err != nil && inProxy != nil {
				t.Errorf("%s: no file %s", page, f[1])
			}
		}
	}
}

// Every setting and metric that a page names exists.
func TestPagesNameSettingsAndMetricsThatExist(t *testing.T) {
	names := 0
	for page, text := range pages(t) {
		for _, name := range variable.FindAllString(text, -1) {
			names++
			if !isVariable(name) {
				t.Errorf("%s: no setting %s", page, name)
			}
		}
		for _, m := range counter.FindAllStringSubmatch(text, -1) {
			names++
			if !strings.Contains(Metrics(), m[1]) {
				t.Errorf("%s: no metric %s", page, m[1])
			}
		}
	}
	if names < 100 {
		t.Errorf("only %d names found", names)
	}
}

// isVariable reports whether name is an environment variable of ours, or the beginning of some.
func isVariable(name string) bool {
	switch name {
	case "RETRYPROXY_TEST_ENGINE", "RETRYPROXY_IMAGE", "RETRYPROXY_ROUTE": // of tests, of deploy/compose, and the beginning of all of a route
		return true
	}
	return slices.ContainsFunc(config.Reference(), func(s config.Setting) bool {
		ofRoute := strings.HasPrefix(name, "RETRYPROXY_ROUTE_") && strings.HasSuffix(name, "_"+s.Key)
		return ofRoute || strings.HasPrefix(s.Variable()+"_", name+"_")
	})
}

// pages returns the text of every Markdown page of the tree by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "dist"):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			all[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchors returns the fragments of a page's headings, formed as GitHub forms them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}

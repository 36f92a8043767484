package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/google/licenseclassifier/v2/assets"
)

// texts knows the licences of the SPDX list by their words; made once, it takes
// a second.
var texts = sync.OnceValues(assets.DefaultClassifier)

// licences gives the SPDX names of the licences in a module's root.
func licences(m *debug.Module) ([]string, error) {
	if known := reviewed[m.Path]; known != "" {
		return []string{known}, nil
	}
	dir, err := sources(m)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if !isLicence(e.Name()) || e.IsDir() {
			continue
		}
		some, err := classify(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func isLicence(name string) bool {
	name = strings.ToUpper(name)
	return strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") || strings.HasPrefix(name, "COPYING")
}

func classify(path string) ([]string, error) {
	known, err := texts()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, match := range known.Match(text).Matches {
		if match.MatchType == "License" {
			found = append(found, match.Name)
		}
	}
	return found, nil
}

// sources is where the module's files lie.
func sources(m *debug.Module) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", m.Path+"@"+m.Version).Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w", m.Path, err)
	}
	_, after, found := bytes.Cut(out, []byte(`"Dir": "`))
	dir, _, ended := bytes.Cut(after, []byte(`"`))
	if !found || !ended {
		return "", fmt.Errorf("go mod download %s: no Dir in %s", m.Path, out)
	}
	return string(dir), nil
}

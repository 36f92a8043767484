// Command vulndb lets govulncheck look for known vulnerabilities where the Go vulnerability database cannot be reached: a
// snapshot of it, cut to this project's modules and the standard library, lies in snapshot.json.
//
//	go run ./tools/vulndb take REPO     writes snapshot.json from REPO, a clone of github.com/golang/vulndb
//	go run ./tools/vulndb database DIR  writes the snapshot to DIR, as the database that govulncheck -db file://DIR reads,
//	                                    and prints the day of its newest entry and its age
//
// database fails if the snapshot is older than oldest, or if a module of this project is not among those that the snapshot was taken for, so a new dependency needs
// a new snapshot. The identifiers, versions and symbols are the Go vulnerability database's, which is under CC BY 4.0;
// its texts are left out.
package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// snapshot is what is kept of the database.
type snapshot struct {
	// Modified is when the database was changed last.
	Modified time.Time `json:"modified"`
	// Modules are the paths of the modules it was taken for, sorted: vulnerabilities of others are not in Entries.
	Modules []string `json:"modules"`
	// Entries are sorted by ID.
	Entries []entry `json:"entries"`
}

// entry is one vulnerability in the OSV format (https://ossf.github.io/osv-schema/), without its texts.
type entry struct {
	SchemaVersion    string          `json:"schema_version"`
	ID               string          `json:"id"`
	Modified         time.Time       `json:"modified"` // its database's, since the repository has none
	Withdrawn        *time.Time      `json:"withdrawn,omitempty"`
	Aliases          []string        `json:"aliases,omitempty"`
	Affected         []affected      `json:"affected"`
	DatabaseSpecific json.RawMessage `json:"database_specific,omitempty"`
}

// affected is a module with the versions and symbols that an entry is about.
type affected struct {
	Package struct {
		Name      string `json:"name"`
		Ecosystem string `json:"ecosystem"`
	} `json:"package"`
	Ranges            json.RawMessage `json:"ranges,omitempty"`
	EcosystemSpecific json.RawMessage `json:"ecosystem_specific,omitempty"`
}

// module is a line of the database's index/modules.json.
type module struct {
	Path  string          `json:"path"`
	Vulns []vulnerability `json:"vulns"`
}

type vulnerability struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
}

const file = "tools/vulndb/snapshot.json"

//go:embed snapshot.json
var embedded []byte

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || args[0] != "take" && args[0] != "database" {
		return fmt.Errorf("usage: vulndb take REPO | database DIR")
	}
	modules, err := projectModules()
	if err != nil {
		return err
	}
	if args[0] == "take" {
		return take(args[1], modules)
	}
	var s snapshot
	if err := json.Unmarshal(embedded, &s); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if missing := s.without(modules); len(missing) > 0 {
		return fmt.Errorf("%s was not taken for %s; take a new one: go run ./tools/vulndb take REPO", file, strings.Join(missing, ", "))
	}
	age, err := s.age(time.Now())
	if err != nil {
		return err
	}
	if err := s.write(args[1]); err != nil {
		return err
	}
	fmt.Println(age)
	return nil
}

// oldest is the age from which a snapshot says too little: Go has a release every six months, and a snapshot from before
// the one in use knows none of its vulnerabilities.
const oldest = 180 * 24 * time.Hour

// age describes the snapshot's age at now. It fails if the snapshot is older than oldest.
func (s *snapshot) age(now time.Time) (string, error) {
	text := fmt.Sprintf("%s, %d days old", s.Modified.Format(time.DateOnly), int(now.Sub(s.Modified).Hours()/24))
	if now.Sub(s.Modified) > oldest {
		return "", fmt.Errorf("%s is of %s, more than %d; take a new one: go run ./tools/vulndb take REPO", file, text, int(oldest.Hours()/24))
	}
	return text, nil
}

// projectModules returns the modules whose packages are in a program or test of this one, sorted, with the names that the
// database has for the standard library and for the go command.
func projectModules() ([]string, error) {
	out, err := output("go", "list", "-deps", "-test", "-tags", "otel", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	modules := append(strings.Fields(out), "stdlib", "toolchain")
	slices.Sort(modules)
	return slices.Compact(modules), nil
}

func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// without returns those of modules that s was not taken for.
func (s *snapshot) without(modules []string) (missing []string) {
	for _, path := range modules {
		if _, found := slices.BinarySearch(s.Modules, path); !found {
			missing = append(missing, path)
		}
	}
	return missing
}

// take writes the snapshot for modules from repo, a clone of the database's repository.
func take(repo string, modules []string) error {
	changed, err := output("git", "-C", repo, "log", "-1", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	s := snapshot{Modules: modules}
	if s.Modified, err = time.Parse(time.RFC3339, changed); err != nil {
		return err
	}
	s.Modified = s.Modified.UTC()
	files, err := exec.Command("git", "-C", repo, "archive", "HEAD", "data/osv").Output()
	if err != nil {
		return fmt.Errorf("git archive: %w", err)
	}
	for archive := tar.NewReader(bytes.NewReader(files)); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		} else if path.Ext(header.Name) != ".json" {
			continue
		}
		var e entry
		if err := json.NewDecoder(archive).Decode(&e); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
		e.Affected = slices.DeleteFunc(e.Affected, func(a affected) bool { return !slices.Contains(modules, a.Package.Name) })
		if len(e.Affected) > 0 {
			e.Modified = s.Modified
			s.Entries = append(s.Entries, e)
		}
	}
	if len(s.Entries) == 0 {
		return fmt.Errorf("%s has no entry about this project's modules", repo)
	}
	return s.save()
}

// save writes s to its file, an entry on each line.
func (s *snapshot) save() error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	modules, err := json.Marshal(s.Modules)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "{\"modified\":%q,\n\"modules\":%s,\n\"entries\":[", s.Modified.Format(time.RFC3339), modules)
	for i, e := range s.Entries {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, "\n%s", line)
	}
	fmt.Fprintln(w, "\n]}")
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// write writes s to dir in the layout of https://go.dev/doc/security/vuln/database.
func (s *snapshot) write(dir string) error {
	byPath := map[string][]vulnerability{}
	for _, e := range s.Entries {
		if err := writeJSON(filepath.Join(dir, "ID", e.ID+".json"), e); err != nil {
			return err
		}
		for _, a := range e.Affected {
			vulns := byPath[a.Package.Name]
			if len(vulns) == 0 || vulns[len(vulns)-1].ID != e.ID {
				byPath[a.Package.Name] = append(vulns, vulnerability{e.ID, e.Modified})
			}
		}
	}
	var index []module
	for path, vulns := range byPath {
		index = append(index, module{path, vulns})
	}
	slices.SortFunc(index, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	if err := writeJSON(filepath.Join(dir, "index", "modules.json"), index); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "index", "db.json"), map[string]time.Time{"modified": s.Modified})
}

func writeJSON(name string, v any) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// Package configfile reads and writes the configuration file, in both of its forms: lines
// NAME=VALUE as in the environment, and YAML.
//
// Both forms are equivalent: Read returns variables and their values. So the names, values and
// checks of settings are those of the environment, and no setting exists in only one form. This
// package does not know which settings exist.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Prefix is the prefix of every variable from a YAML file.
const Prefix = "RETRYPROXY_"

// MaxBytes is the maximum size of a configuration file: enough for over 100 000 lines, but
// small enough to detect a device file or a log.
const MaxBytes = 16 << 20

// Pair is a variable that the file sets, or the prefix of the variables of a route in YAML, without a value.
type Pair struct {
	Name, Value string
	Line        int    // where it is set, from 1
	Key         string // what a configuration file calls it: routes[0].path in YAML, else Name
}

// IsYAML reports whether a file of that name holds YAML. Any other holds lines NAME=VALUE.
func IsYAML(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".yaml" || ext == ".yml"
}

// RouteWord returns the name of a route as used in variables: user-api becomes USER_API.
func RouteWord(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// Read reads the file at path. The pairs are in the order of the file, no name occurs
// twice. The error joins a LineError for every bad line, and never contains a value; the pairs of
// the other lines are returned with it.
func Read(path string) ([]Pair, error) {
	content, err := text(path)
	if err != nil {
		return nil, err
	}
	var list pairs
	if IsYAML(path) {
		list.addYAML(content)
	} else {
		list.addLines(content)
	}
	return list.pairs, errors.Join(list.errs...)
}

// text returns the content of the file at path, which must be UTF-8 and at most MaxBytes long.
func text(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err) // without the path, which the caller adds
	}
	defer f.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	if len(content) > MaxBytes {
		return nil, fmt.Errorf("larger than %d MiB", MaxBytes>>20)
	}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		return nil, errors.New("not a text file (UTF-8)")
	}
	return content, nil
}

// pairs collects what a file sets, and its errors.
type pairs struct {
	pairs []Pair
	errs  []error
	lines map[string]int // name -> line
}

// add adds a pair unless its name is already set. shown is the name as written in the file.
func (p *pairs) add(name, value, shown string, line int) {
	if p.lines == nil {
		p.lines = map[string]int{}
	}
	if before := p.lines[name]; before != 0 {
		p.wrong(line, "%s is already set in line %d", shown, before)
		return
	}
	p.lines[name] = line
	p.pairs = append(p.pairs, Pair{name, value, line, shown})
}

func (p *pairs) wrong(line int, format string, args ...any) {
	p.errs = append(p.errs, &LineError{line, fmt.Errorf(format, args...)})
}

// LineError is an error of one line of a file, from 1.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

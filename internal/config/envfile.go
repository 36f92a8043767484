package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// MaxEnvFileBytes is the maximum size of the RETRYPROXY_ENV_FILE: enough for over 100 000
// lines, but small enough to detect a device file or a log.
const MaxEnvFileBytes = 16 << 20

// pair is one line of the file.
type pair struct {
	name, value string
	line        int
}

// readEnvFile reads and parses the file at path. The error reports every bad line by number
// and never contains its value.
func readEnvFile(path string) ([]pair, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err) // without the path, which the caller adds
	}
	defer f.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, MaxEnvFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", errors.Unwrap(err))
	}
	if len(content) > MaxEnvFileBytes {
		return nil, fmt.Errorf("larger than %d MiB", MaxEnvFileBytes>>20)
	}
	return parseEnvFile(content)
}

// parseEnvFile parses lines of NAME=VALUE.
//
// It ignores empty lines and lines that begin with #. It trims space around name and value.
// A value in single quotes is literal. A value in double quotes may contain \n, \t, \", \\
// and \$. After the closing quote only a comment may follow. In a value without quotes # is
// an ordinary character. Nothing is ever expanded. Lines may end in CRLF.
func parseEnvFile(content []byte) ([]pair, error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		return nil, errors.New("not a text file (UTF-8)")
	}
	var (
		pairs []pair
		errs  []error
		seen  = map[string]int{}
	)
	number := 0
	for line := range strings.SplitSeq(string(content), "\n") {
		number++
		name, value, err := parseLine(strings.TrimSpace(line))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("line %d: %w", number, err))
		case name == "":
		case seen[name] != 0:
			errs = append(errs, fmt.Errorf("line %d: %s is already set in line %d", number, name, seen[name]))
		default:
			seen[name] = number
			pairs = append(pairs, pair{name, value, number})
		}
	}
	return pairs, errors.Join(errs...)
}

// parseLine parses a line; it returns an empty name for an empty line or a comment.
func parseLine(line string) (name, value string, err error) {
	if line == "" || line[0] == '#' {
		return "", "", nil
	}
	name, value, found := strings.Cut(line, "=")
	name = strings.TrimSpace(name)
	if !found {
		return "", "", errors.New("expected NAME=VALUE")
	}
	if !isVariableName(name) {
		return "", "", fmt.Errorf("%q is not a variable's name", name)
	}
	value, err = unquote(strings.TrimSpace(value))
	return name, value, err
}

func isVariableName(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && s[i] != '_' {
			return false
		}
	}
	return s != "" && (s[0] < '0' || s[0] > '9')
}

func unquote(s string) (string, error) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return s, nil
	}
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return b.String(), checkAfterQuote(s[i+1:])
		case c == '\\' && quote == '"':
			i++
			if i == len(s) {
				return "", errors.New("the closing quote is missing")
			}
			e, err := unescape(s[i])
			if err != nil {
				return "", err
			}
			b.WriteByte(e)
		default:
			b.WriteByte(c)
		}
	}
	return "", errors.New("the closing quote is missing")
}

func unescape(c byte) (byte, error) {
	switch c {
	case 'n':
		return '\n', nil
	case 't':
		return '\t', nil
	case '"', '\\', '$':
		return c, nil
	}
	return 0, fmt.Errorf(`\%c is not an escape in double quotes; write \\ for a backslash`, c)
}

func checkAfterQuote(rest string) error {
	trimmed := strings.TrimSpace(rest)
	if trimmed == "" || trimmed[0] == '#' && trimmed != rest {
		return nil
	}
	return errors.New("only a comment may follow the closing quote")
}

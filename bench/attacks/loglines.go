package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// logStage judges the log of an attack.
type logStage struct {
	findings
	file    string
	answers atomic.Int64
}

// longestLine is a path of 1 KiB, in which a byte may take two, an id of 128, and the rest.
const longestLine = 4 * kib

// requestKeys are those of the access log, and of a request given up.
var requestKeys = []string{"attempts", "duration_seconds", "host", "level", "method", "msg", "outcome", "path", "peer", "reason", "request_bytes", "request_id", "response_bytes", "route", "status", "time", "trace_id", "user_agent"}

func (g *logStage) judge(*proxy) (string, []string) {
	lines, longest, err := g.read()
	if err != nil {
		g.add("%v", err)
	}
	g.atLeast(20, g.answers.Load(), "answers")
	g.atLeast(g.answers.Load()/2, lines, "lines of requests")
	return fmt.Sprintf("%d lines of requests, each one JSON object with its keys, the longest of %d bytes; %d lines with something wrong", lines, longest, g.n), g.all()
}

func (g *logStage) read() (lines int64, longest int, err error) {
	f, err := os.Open(g.file)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for r := bufio.NewReaderSize(f, mib); ; {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return lines, longest, nil // the last one may be in flight
		}
		if err != nil {
			return lines, longest, err
		}
		longest = max(longest, len(line))
		is, wrong := judgeLine(bytes.TrimSuffix(line, []byte("\n")))
		if wrong != nil {
			g.add("%v: %.300q", wrong, line)
		}
		if is {
			lines++
		}
	}
}

// judgeLine says whether a line is of a request, and what is wrong with it.
func judgeLine(line []byte) (ofRequest bool, wrong error) {
	switch {
	case len(line) > longestLine:
		return false, fmt.Errorf("a line of %d bytes", len(line))
	case !utf8.Valid(line):
		return false, fmt.Errorf("bytes that are no text")
	case bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }):
		return false, fmt.Errorf("a control character")
	case bytes.Contains(line, []byte(secret)):
		return false, fmt.Errorf("a secret")
	}
	keys, msg, err := keysOf(line)
	switch {
	case err != nil:
		return false, err
	case msg == "forged" || slices.Contains(keys, "forged"):
		return false, fmt.Errorf("a line that the proxy did not write")
	case msg != "request" && msg != "request given up":
		return false, nil
	}
	slices.Sort(keys)
	if !slices.Equal(keys, requestKeys) {
		return true, fmt.Errorf("the keys %s", strings.Join(keys, " "))
	}
	return true, nil
}

// keysOf are the keys of one object, each as often as it is there.
func keysOf(line []byte) (keys []string, msg string, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, "", fmt.Errorf("no JSON object (%v)", err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, "", err
		}
		keys = append(keys, key.(string))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, "", err
		}
		if key == "msg" {
			_ = json.Unmarshal(value, &msg)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, "", err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, "", fmt.Errorf("more than one object")
	}
	return keys, msg, nil
}

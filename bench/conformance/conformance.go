// Package conformance is a table of some 800 raw HTTP/1.1 requests and responses, each with the rule that it tests and what a proxy
// must do with it, and a driver that shows them to a proxy over TCP.
//
// The tables are in requests.go. The tests run the real binary (`make conformance`); testdata has what became
// of each case, and docs/explanation/conformance.md a summary beside HAProxy and nginx. Whatever a proxy makes of a case, check says
// whether what reached the other side is in the one form that no two parsers read differently.
package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
)

// must is what a proxy has to do with a case.
type must uint8

const (
	mustForward must = iota // give the other side the same meaning
	mustRefuse              // give the other side nothing of it
	mayEither               // the RFC allows more than one way
	mustCut                 // of a response: its body may begin, its end must not look like one
)

var mustTexts = []string{"forward", "refuse", "either", "cut"}

func (m must) String() string { return mustTexts[m] }

// hole is where a family's variants go.
const hole = "\xf0\x9f\x95\xb3"

// family are cases that test one rule.
type family struct {
	rule  string // RFC and section
	about string
	must  must
	form  string
	with  []string // nil: form is the only case
}

// testCase is one of them.
type testCase struct {
	id    string // rule, about, number in its family
	rule  string
	about string
	must  must
	raw   string
}

func words(list string) []string { return strings.Fields(list) }

// cases of a table, in order.
func cases(table []family) (all []testCase) {
	for _, f := range table {
		with := f.with
		if with == nil {
			with = []string{""}
		}
		for i, v := range with {
			all = append(all, testCase{
				id: fmt.Sprintf("%s; %s; %d", f.rule, f.about, i+1), rule: f.rule, about: f.about, must: f.must,
				raw: strings.ReplaceAll(f.form, hole, v),
			})
		}
	}
	return all
}

// Requests returns the raw requests of the table up to 4 KiB, for those who make others of them.
func Requests() (all []string) {
	for _, c := range cases(requestFamilies) {
		if len(c.raw) < 4<<10 {
			all = append(all, c.raw)
		}
	}
	return all
}

// The forms that all parsers read alike: RFC 9112's, without what it lets be
// written in more than one way.
var (
	requestLine  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^\\x00-\\x20\\x7f#]+ HTTP/1\\.[01]$")
	statusLine   = regexp.MustCompile(`^HTTP/1\.[01] [1-9][0-9][0-9] [^\x00-\x08\x0a-\x1f\x7f]*$`)
	fieldLine    = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$")
	decimal      = regexp.MustCompile("^(0|[1-9][0-9]{0,18})$")
	chunkLine    = regexp.MustCompile("^[0-9A-Fa-f]{1,16}$")
	framingTwins = regexp.MustCompile("(?i)^(content[-_]length|transfer[-_]encoding)$")
)

// Malformed reports whether an error of net/http means that a message cannot be
// read, and not that it was cut off.
func Malformed(err error) bool {
	var op *net.OpError
	return err != nil && err != io.EOF && err != io.ErrUnexpectedEOF && !errors.As(err, &op)
}

// CheckRequest says what in a request leaves room for a second reading; "" for nothing.
func CheckRequest(message []byte) string { return check(message, requestLine) }

// check says what in a message leaves room for a second reading; "" for nothing.
// Of a message that is cut off the head counts.
func check(message []byte, start *regexp.Regexp) string {
	head, body, whole := bytes.Cut(message, []byte("\r\n\r\n"))
	if !whole {
		return ""
	}
	lines := strings.Split(string(head), "\r\n")
	if !start.MatchString(lines[0]) {
		return fmt.Sprintf("start line %.80q", lines[0])
	}
	var lengths, codings []string
	hosts := 0
	for _, line := range lines[1:] {
		if !fieldLine.MatchString(line) {
			return fmt.Sprintf("field line %.80q", line)
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		switch lower := strings.ToLower(name); {
		case lower == "content-length":
			lengths = append(lengths, value)
		case lower == "transfer-encoding":
			codings = append(codings, value)
		case lower == "host":
			hosts++
		case framingTwins.MatchString(name):
			return fmt.Sprintf("%q, which some read as framing", name)
		}
	}
	switch {
	case start == requestLine && hosts != 1 && (hosts > 1 || strings.HasSuffix(lines[0], "1.1")):
		return fmt.Sprintf("%d Host fields", hosts)
	case len(lengths)+len(codings) > 1:
		return fmt.Sprintf("framed %d times", len(lengths)+len(codings))
	case len(lengths) == 1 && !decimal.MatchString(lengths[0]):
		return fmt.Sprintf("Content-Length %q", lengths[0])
	case len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return fmt.Sprintf("Transfer-Encoding %q", codings[0])
	case len(codings) == 1:
		return checkChunks(string(body))
	}
	return ""
}

// checkChunks does that for a chunked body, as far as it goes.
func checkChunks(body string) string {
	for {
		line, rest, whole := strings.Cut(body, "\r\n")
		if !whole {
			return ""
		}
		var size uint64
		if _, err := fmt.Sscanf(line, "%x", &size); err != nil || !chunkLine.MatchString(line) {
			return fmt.Sprintf("chunk size line %.80q", line)
		}
		if size == 0 {
			return checkTrailers(rest)
		}
		if uint64(len(rest)) < size+2 {
			return ""
		}
		if rest[size:size+2] != "\r\n" {
			return "a chunk that does not end where it says"
		}
		body = rest[size+2:]
	}
}

func checkTrailers(section string) string {
	for line := range strings.SplitSeq(section, "\r\n") {
		if line == "" {
			return ""
		}
		if !fieldLine.MatchString(line) {
			return fmt.Sprintf("trailer %.80q", line)
		}
	}
	return ""
}

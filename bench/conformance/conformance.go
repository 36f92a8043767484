// Package conformance has some 800 raw HTTP/1.1 requests and responses. Each has the rule that it tests
// and what a proxy must do with it. The tests send them to the real binary (`make conformance`).
//
// The tables are in requests.go and responses.go. testdata has the result of each case, and
// docs/explanation/conformance.md a summary beside HAProxy and nginx. Whatever a proxy does with a case,
// check finds messages on the other side that two parsers could read differently.
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

// must is what a proxy must do with a case.
type must uint8

const (
	mustForward must = iota // forward it with the same meaning
	mustRefuse              // forward nothing of it
	mayEither               // the RFC allows more than one way
	mustCut                 // a response: its body may begin, but must not look whole
)

var mustTexts = []string{"forward", "refuse", "either", "cut"}

func (m must) String() string { return mustTexts[m] }

// hole is the place of the variants in a form.
const hole = "\xf0\x9f\x95\xb3"

// family is the cases of one rule.
type family struct {
	rule  string // RFC and section
	about string
	must  must
	form  string
	with  []string // nil: form is the only case
}

// testCase is one case of a family.
type testCase struct {
	id    string // rule, about, number in its family
	rule  string
	about string
	must  must
	raw   string
}

func words(list string) []string { return strings.Fields(list) }

// cases returns the cases of a table, in order.
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

// The forms that all parsers read alike: those of RFC 9112 without its alternatives.
var (
	requestLine  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^\\x00-\\x20\\x7f#]+ HTTP/1\\.[01]$")
	statusLine   = regexp.MustCompile(`^HTTP/1\.[01] [1-9][0-9][0-9] [^\x00-\x08\x0a-\x1f\x7f]*$`)
	fieldLine    = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$")
	decimal      = regexp.MustCompile("^(0|[1-9][0-9]{0,18})$")
	chunkLine    = regexp.MustCompile("^[0-9A-Fa-f]{1,16}$")
	framingTwins = regexp.MustCompile("(?i)^(content[-_]length|transfer[-_]encoding)$")
)

// Malformed reports whether an error of net/http means a malformed message and not one that was cut off.
func Malformed(err error) bool {
	var op *net.OpError
	return err != nil && err != io.EOF && err != io.ErrUnexpectedEOF && !errors.As(err, &op)
}

// CheckRequest returns what in a request allows a second reading; "" means nothing.
func CheckRequest(message []byte) string { return check(message, requestLine) }

// check returns what in a message allows a second reading; "" means nothing. If the message is cut off,
// only its headers count.
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

// checkChunks does the same for a chunked body, as far as it has come.
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

// Package conformance is a table of some 800 raw HTTP/1.1 requests and responses, each with the rule that it tests and what a proxy
// must do with it, and a driver that shows them to a proxy over TCP.
//
// The tables are requests.go and responses.go. The tests run the real binary (`make conformance`); testdata has what became
// of each case, and docs/explanation/conformance.md a summary beside HAProxy and nginx. Whatever a proxy makes of a case, check says
// whether what reached the other side is in the one form that no two parsers read differently.
package conformance

import (
	"fmt"
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

// Requests are the raw requests of the table, for whoever makes others of them.
func Requests() (all []string) {
	for _, c := range cases(requestFamilies) {
		all = append(all, c.raw)
	}
	return all
}

package metrics

import (
	"strconv"
	"sync/atomic"
)

// other is the label of a value outside a closed set.
const other = "other"

// methodLabels lists the methods of RFC 9110 section 9.3 and RFC 5789. The last one is for
// all others, of which a client can invent any number.
var methodLabels = [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", other}

const (
	numMethods  = len(methodLabels)
	otherMethod = numMethods - 1
)

// methodIndex returns the index of a method's label. Methods are case-sensitive.
func methodIndex(method []byte) int {
	switch string(method) { // a switch does not copy the bytes
	case "GET":
		return 0
	case "HEAD":
		return 1
	case "POST":
		return 2
	case "PUT":
		return 3
	case "DELETE":
		return 4
	case "CONNECT":
		return 5
	case "OPTIONS":
		return 6
	case "TRACE":
		return 7
	case "PATCH":
		return 8
	}
	return otherMethod
}

// Codes 100 to 599 are counted separately.
const (
	leastCode = 100
	rowCodes  = 100
	numRows   = 5
)

// codeRow counts the codes of one hundred, e.g. 200 to 299.
type codeRow [rowCodes]atomic.Uint64

// codeTable counts by status code. A row is allocated when one of its codes first occurs.
type codeTable struct {
	rows  [numRows]atomic.Pointer[codeRow]
	other atomic.Uint64 // codes outside 100..599, and no code
}

func (t *codeTable) inc(code int) {
	i := uint(code - leastCode)
	if i >= numRows*rowCodes {
		t.other.Add(1)
		return
	}
	row := t.rows[i/rowCodes].Load()
	if row == nil {
		row = t.makeRow(i / rowCodes)
	}
	row[i%rowCodes].Add(1)
}

func (t *codeTable) makeRow(i uint) *codeRow {
	t.rows[i].CompareAndSwap(nil, new(codeRow))
	return t.rows[i].Load()
}

// add adds the counts of another table.
func (t *codeTable) add(o *codeTable) {
	for i := range o.rows {
		from := o.rows[i].Load()
		if from == nil {
			continue
		}
		row := t.makeRow(uint(i))
		for k := range from {
			row[k].Add(from[k].Load())
		}
	}
	t.other.Add(o.other.Load())
}

// each calls f with the label and the count of every code that has occurred.
func (t *codeTable) each(f func(code string, n uint64)) {
	for i := range t.rows {
		row := t.rows[i].Load()
		if row == nil {
			continue
		}
		for k := range row {
			if n := row[k].Load(); n > 0 {
				f(strconv.Itoa(leastCode+i*rowCodes+k), n)
			}
		}
	}
	if n := t.other.Load(); n > 0 {
		f(other, n)
	}
}

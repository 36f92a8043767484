package http1

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

type field struct{ name, value string }

// requestRecord returns the record of a request, and its text.
func requestRecord(method, target string, mark BodyMark, fields []field) (record, text []byte) {
	record = AppendRequestRecord(nil, method, target, mark)
	text = AppendRequestLine(nil, method, target)
	for _, f := range fields {
		record = AppendRecordField(record, f.name, f.value)
		text = AppendHeader(text, appendCapitals(nil, f.name), f.value)
	}
	return EndRecord(record, 0, len(fields)), append(text, "\r\n"...)
}

// same reports how two parsed requests differ, "" if they do not.
func same(a, b *Request) string {
	switch {
	case string(a.Method) != string(b.Method), string(a.Target) != string(b.Target), string(a.Scheme) != string(b.Scheme),
		string(a.Authority) != string(b.Authority), string(a.Path) != string(b.Path), string(a.Query) != string(b.Query), string(a.Upgrade) != string(b.Upgrade):
		return "spans"
	case a.Minor != b.Minor, a.Body != b.Body, a.Form != b.Form, a.HasQuery != b.HasQuery, a.Close != b.Close, a.ExpectContinue != b.ExpectContinue,
		a.AcceptsTrailers != b.AcceptsTrailers, a.HasHopByHopNames != b.HasHopByHopNames:
		return "properties"
	}
	return sameHeaders(a.Headers, b.Headers)
}

func sameHeaders(a, b []Header) string {
	if len(a) != len(b) {
		return "number of headers"
	}
	for i := range a {
		if string(a[i].Name) != string(b[i].Name) || string(a[i].Value) != string(b[i].Value) || a[i].ID != b[i].ID {
			return "header " + string(a[i].Name)
		}
		if la, lb := a[i].AppendLine(nil), b[i].AppendLine(nil); !bytes.Equal(la, lb) {
			return "line " + string(la)
		}
	}
	return ""
}

var recordNames = []string{"host", "content-length", "x-forwarded-for", "x_forwarded_for", "te", "expect", "connection", "upgrade", "a", "x-long-name-of-a-header",
	"content.length", "bad name", "", "transfer-encoding", "idempotency-key", "x-retryproxy-x", "na\x01me", "grüße"}
var recordValues = []string{"", "a", "a.test", "a.test:80", "5", "05", "100-continue", "trailers", "close", "websocket", "  x ", "\tx", "a\x01b", "a\x7f", "grüße", "chunked", "-1", strings.Repeat("v", 300)}
var recordTargets = []string{"/", "/a?b=c", "*", "/%zz", "/%41", "/a#b", "http://x/y", "/\x7f", "/grüße", "/\xff", "", "x", "/" + strings.Repeat("p", 400), "/a?"}
var recordMethods = []string{"GET", "POST", "OPTIONS", "CONNECT", "HEAD", "", "get", "B\x01", strings.Repeat("M", 40)}

// A record is read as its text is: what one refuses the other does, and what is read is the same.
func TestARecordIsReadAsItsText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	limits := Limits{HeaderBytes: 600, Headers: 6}
	accepted := 0
	for range 300_000 {
		method, target := pick(recordMethods[:3+rng.IntN(7)]), pick(recordTargets[:1+rng.IntN(len(recordTargets))])
		fields := []field{{"host", "a.test"}}
		for range rng.IntN(8) {
			fields = append(fields, field{pick(recordNames), pick(recordValues)})
		}
		if rng.IntN(4) == 0 {
			fields = fields[1:]
		}
		rec, text := requestRecord(method, target, AsDeclared, fields)
		var a, b Request
		n, errA := a.Compose(rec, limits)
		m, errB := b.Parse(text, limits)
		if (errA == nil) != (errB == nil) || errA == nil && (n != len(rec) || m != len(text)) {
			t.Fatalf("%q: record %d %v, text %d %v", text, n, errA, m, errB)
		}
		if errA != nil {
			continue
		}
		accepted++
		if how := same(&a, &b); how != "" {
			t.Fatalf("%q: %s differs", text, how)
		}
	}
	if accepted < 10_000 {
		t.Error("only", accepted, "were accepted")
	}
}

// The same for responses.
func TestARecordOfAResponseIsReadAsItsText(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	accepted := 0
	for range 100_000 {
		status := []int{100, 103, 200, 204, 304, 404, 503}[rng.IntN(7)]
		method := []byte([]string{"GET", "HEAD"}[rng.IntN(2)])
		rec, text := AppendResponseRecord(nil, status, http.StatusText(status), AsDeclared), AppendStatusLine(nil, status, http.StatusText(status))
		n := rng.IntN(6)
		for range n {
			name, value := recordNames[rng.IntN(len(recordNames))], recordValues[rng.IntN(len(recordValues))]
			rec, text = AppendRecordField(rec, name, value), AppendHeader(text, appendCapitals(nil, name), value)
		}
		rec, text = EndRecord(rec, 0, n), append(text, "\r\n"...)
		var a, b Response
		_, errA := a.Compose(rec, Limits{}, method)
		_, errB := b.Parse(text, Limits{}, method)
		if (errA == nil) != (errB == nil) {
			t.Fatalf("%q: record %v, text %v", text, errA, errB)
		}
		if errA != nil {
			continue
		}
		accepted++
		if b.Body.Kind == BodyClose {
			b.Body, b.Close = Framing{Kind: BodyStream, Length: -1}, a.Close
		}
		if how := sameHeaders(a.Headers, b.Headers); how != "" || a.Status != b.Status || string(a.Phrase) != string(b.Phrase) || a.Body != b.Body || a.Length != b.Length || a.Close != b.Close {
			t.Fatalf("%q: %s differs: %+v %+v", text, how, a, b)
		}
	}
	if accepted < 10_000 {
		t.Error("only", accepted, "were accepted")
	}
}

func TestTheMarkOfARecordTellsWhereTheBodyEnds(t *testing.T) {
	declared, none := []field{{"host", "a"}, {"content-length", "5"}, {"expect", "100-continue"}}, []field{{"host", "a"}, {"expect", "100-continue"}}
	for _, c := range []struct {
		mark   BodyMark
		fields []field
		want   Framing
	}{
		{AsDeclared, none, Framing{}},
		{AsDeclared, declared, Framing{Kind: BodyLength, Length: 5}},
		{EndsStream, none, Framing{Kind: BodyStream, Length: -1}},
		{EndsStream, declared, Framing{Kind: BodyStream, Length: 5}},
	} {
		rec, _ := requestRecord("POST", "/", c.mark, c.fields)
		var r Request
		if _, err := r.Compose(rec, Limits{}); err != nil || r.Body != c.want || r.ExpectContinue == r.Body.Empty() {
			t.Errorf("%+v: %+v %v", c, r.Body, err)
		}
	}
	for _, c := range []struct {
		mark   BodyMark
		status int
		length string
		method string
		want   Framing
	}{
		{EndsStream, 200, "", "GET", Framing{Kind: BodyStream, Length: -1}},
		{EndsStream, 200, "5", "GET", Framing{Kind: BodyStream, Length: 5}},
		{AsDeclared, 200, "5", "GET", Framing{Kind: BodyLength, Length: 5}},
		{EndedHere, 200, "", "GET", Framing{Kind: BodyLength}},
		{EndedHere, 200, "5", "HEAD", Framing{}},
		{EndedHere, 204, "", "GET", Framing{}},
	} {
		rec, n := AppendResponseRecord(nil, c.status, "", c.mark), 0
		if c.length != "" {
			rec, n = AppendRecordField(rec, "content-length", c.length), 1
		}
		var r Response
		if _, err := r.Compose(EndRecord(rec, 0, n), Limits{}, []byte(c.method)); err != nil || r.Body != c.want || r.Close {
			t.Errorf("%+v: %+v %v", c, r.Body, err)
		}
	}
}

// A piece of a record is no record.
func TestARecordInPieces(t *testing.T) {
	rec, _ := requestRecord("GET", "/", AsDeclared, []field{{"host", "a"}})
	var r Request
	for n := range rec {
		if got, err := r.Compose(rec[:n], Limits{}); got != 0 || err != nil {
			t.Fatal(n, got, err)
		}
	}
	if n, err := r.Compose(append(rec, "more"...), Limits{}); n != len(rec) || err != nil {
		t.Error(n, err)
	}
}

// A record that is too large is refused before all of it is here, and for the reason for which all of it is.
func TestARecordThatIsTooLargeIsNotAwaited(t *testing.T) {
	limits := Limits{HeaderBytes: 600, Headers: 6}
	host, long := field{"host", "a"}, strings.Repeat("v", 700)
	for _, c := range []struct {
		method, target string
		fields         []field
		want           Refusal
	}{
		{"GET", "/", []field{host, {"x", long}}, RefusalHeadersTooLarge},
		{"GET", "/", slices.Repeat([]field{{"a", "b"}}, 7), RefusalTooManyHeaders},
		{"HEAD", "/" + long, []field{host}, RefusalTargetTooLong},
		{"GET", "/" + long, []field{host, {"x", long}}, RefusalTargetTooLong},
		{long, "/", []field{host}, RefusalMethodTooLong},
	} {
		rec, text := requestRecord(c.method, c.target, AsDeclared, c.fields)
		var r, asText Request
		_, parsed := asText.Parse(text, limits)
		_, head := r.Compose(rec[:recordHead+min(len(c.method), longestMethod)], limits)
		if string(r.Method) != string(asText.Method) { // the response to HEAD has no body
			t.Errorf("%v: by its head it is a %q, as text a %q", c.want, r.Method, asText.Method)
		}
		_, whole := r.Compose(rec, limits)
		if string(r.Method) != string(asText.Method) {
			t.Errorf("%v: whole it is a %q, as text a %q", c.want, r.Method, asText.Method)
		}
		if want := c.want.Err(); head != want || whole != want || parsed != want {
			t.Errorf("%v: by its head %v, whole %v, as text %v", c.want, head, whole, parsed)
		}
	}
	for _, fields := range [][]field{{{"x", long}}, slices.Repeat([]field{{"a", "b"}}, 7)} {
		rec := AppendResponseRecord(nil, 200, "OK", AsDeclared)
		for _, f := range fields {
			rec = AppendRecordField(rec, f.name, f.value)
		}
		var r Response
		rec = EndRecord(rec, 0, len(fields))
		_, head := r.Compose(rec[:recordHead], limits, nil)
		if _, whole := r.Compose(rec, limits, nil); head == nil || head != whole {
			t.Error("a response:", head, whole)
		}
	}
}

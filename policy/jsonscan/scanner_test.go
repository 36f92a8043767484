package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	idA ID = iota + 1
	idB
	idUsage
	idN
	idInner // usage in usage
)

func names(parent ID, key []byte) ID {
	switch {
	case parent == Root && string(key) == "a":
		return idA
	case parent == Root && string(key) == "b":
		return idB
	case parent == Root && string(key) == "usage":
		return idUsage
	case (parent == idUsage || parent == idInner) && string(key) == "n":
		return idN
	case (parent == idUsage || parent == idInner) && string(key) == "usage":
		return idInner
	}
	return 0
}

// scan reads a text in pieces of size and returns the members asked for.
func scan(text []byte, size int) (found []string, state State) {
	s := New(names)
	for len(text) > 0 {
		piece := text[:min(size, len(text))]
		text = text[len(piece):]
		for {
			n, v, ok := s.Next(piece)
			piece = piece[n:]
			if !ok {
				break
			}
			found = append(found, fmt.Sprintf("%d:%d:%v:%s", v.ID, v.Kind, v.True, v.Text))
		}
	}
	if s.State() == StateOpen && s.depth == 0 {
		s.Next([]byte(" ")) // ends a number
	}
	return found, s.State()
}

func TestFindsTheMembersThatAreAskedFor(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"x","b":12}`: "[1:3:false:x 2:2:false:12]",
		" {\n\"c\" : [ {\"a\" : 1} ] , \"a\" : true } ": "[1:1:true:]",
		`{"usage":{"n":3,"x":{"n":4},"usage":{"n":5}}}`: "[3:4:false: 4:2:false:3 5:4:false: 4:2:false:5]",
		`{"\u0061":"\ud83d\ude00\n\ud83dx","b":null}`:   "[1:3:false:\U0001f600\n\ufffdx 2:0:false:]",
		`[{"a":1}]`:           "[]",
		`{"usage":[{"n":1}]}`: "[3:5:false:]",
		`{"a":"` + strings.Repeat("x", MaxText) + `"}`:             "[1:3:false:" + strings.Repeat("x", MaxText) + "]",
		`{"a":"` + strings.Repeat("x", MaxText+1) + `","b":false}`: "[2:1:false:]",
	} {
		for _, size := range []int{1, 2, 3, 1000} {
			if got, state := scan([]byte(text), size); fmt.Sprint(got) != want || state != StateWhole {
				t.Errorf("%s by %d: %v, state %d; want %s", text, size, got, state, want)
			}
		}
	}
}

func TestRefusesWhatIsNoJSON(t *testing.T) {
	for _, text := range []string{`{"a" 1}`, `{a:1}`, `{"a":01}`, `{"a":1,}`, `[1,]`, `{"a":"` + "\n" + `"}`, `{"a":"\x"}`, `{"a":"\u00g0"}`,
		`}`, `[}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":+1}`, `{"a":tru }`, `nul `, "\x1f\x8b\x08", strings.Repeat("[", MaxDepth+1), strings.Repeat(`{"a":`, 10_000)} {
		if _, state := scan([]byte(text), 7); state != StateBroken {
			t.Errorf("%.40s: state %d", text, state)
		}
	}
	if _, state := scan([]byte(strings.Repeat("[", MaxDepth)+strings.Repeat("]", MaxDepth)), 7); state != StateWhole {
		t.Errorf("the deepest text: state %d", state)
	}
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "1000000000000": 1e12, "1000000000001": -1, "99999999999999999999": -1, "-1": -1, "1.0": -1, "1e3": -1} {
		v := Value{Kind: Number, Text: []byte(text)}
		if n, ok := v.Int(); ok != (want >= 0) || ok && n != want {
			t.Errorf("%s: %d %v", text, n, ok)
		}
	}
	if _, ok := (&Value{Kind: String, Text: []byte("1")}).Int(); ok {
		t.Error("a string is no number")
	}
}

func TestDoesNotAllocate(t *testing.T) {
	text := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}],"a":"gpt","b":7}`)
	s := New(names)
	if n := testing.AllocsPerRun(100, func() {
		s.Reset()
		for rest := text; ; {
			n, _, ok := s.Next(rest)
			if rest = rest[n:]; !ok {
				break
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzScanner compares with encoding/json: whether a text is JSON, and the members a and b of the
// outermost object.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{`{"a":"x","b":[1,{"a":2}]}`, `{"a":"\ud83d\ude00","b":-1.5e+3}`, `[1]`, `"x"`, `{"a":{"b":1},"b":"\\"}`, `{"a":1}x`, "1"} {
		f.Add([]byte(text), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		size = 1 + max(size, -size)&7
		found, state := scan(text, size)
		if whole, wholeState := scan(text, len(text)+1); fmt.Sprint(whole) != fmt.Sprint(found) || wholeState != state {
			t.Fatalf("by %d: %v %d; at once: %v %d", size, found, state, whole, wholeState)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		want, err := members(d)
		if err != nil {
			if state == StateWhole {
				t.Fatalf("whole, and encoding/json says %v", err)
			}
			return
		}
		if state != StateWhole {
			if deep(text) {
				return
			}
			t.Fatalf("state %d, and encoding/json reads it", state)
		}
		if !utf8.Valid(text) {
			return // encoding/json replaces invalid UTF-8
		}
		if fmt.Sprint(top(found)) != fmt.Sprint(want) {
			t.Fatalf("%q; want %q", top(found), want)
		}
	})
}

// deep reports whether the text may be nested deeper than a Scanner reads.
func deep(text []byte) bool {
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > MaxDepth
}

// top returns the members a and b, without usage and its own.
func top(found []string) (all []string) {
	for _, f := range found {
		if strings.HasPrefix(f, "1:") || strings.HasPrefix(f, "2:") {
			all = append(all, f)
		}
	}
	return all
}

// members reads one value with encoding/json and returns the members a and b in the form of scan.
func members(d *json.Decoder) (all []string, err error) {
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if value[0] != '{' {
		return nil, nil
	}
	inner := json.NewDecoder(bytes.NewReader(value))
	inner.UseNumber()
	if _, err := inner.Token(); err != nil {
		return nil, err
	}
	for inner.More() {
		key, err := inner.Token()
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := inner.Decode(&v); err != nil && err != io.EOF {
			return nil, err
		}
		if key != "a" && key != "b" {
			continue
		}
		id, text, kind := map[any]ID{"a": idA, "b": idB}[key], "", Number
		switch v[0] {
		case '"':
			var s string
			_ = json.Unmarshal(v, &s)
			kind, text = String, s
		case 't', 'f':
			kind = Bool
		case 'n':
			kind = Null
		case '{':
			kind = Object
		case '[':
			kind = Array
		default:
			text = string(v)
		}
		if len(text) > MaxText {
			continue
		}
		all = append(all, fmt.Sprintf("%d:%d:%v:%s", id, kind, v[0] == 't', text))
	}
	return all, nil
}

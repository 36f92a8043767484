package roff

import "testing"

func TestNothingOfATextIsARequest(t *testing.T) {
	if got := Escape("a-b\n.c\n'd\\"); got != "a\\-b\n\\&.c\n\\&'d\\e" {
		t.Errorf("%q", got)
	}
	if got := Arg(`a "b"`); got != `"a \(dqb\(dq"` {
		t.Errorf("%q", got)
	}
}

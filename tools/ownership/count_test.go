package main

import (
	"slices"
	"strings"
	"testing"
)

func fixture(plain string) (*findings, error) {
	return measure(&options{dir: "testdata/house", under: []string{"a", "b"}, owned: []string{"a"}, plain: parsePlain(plain)})
}

func TestWhatCounts(t *testing.T) {
	f, err := fixture("a.Options # filled in by who asks")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range f.writes {
		got = append(got, p.how+" "+p.owner+"."+p.field)
	}
	slices.Sort(got)
	want := []string{
		"assigns a.Inner.In", "assigns a.T.N", "assigns a.T.N", "assigns a.T.N", "assigns a.T.S", "assigns a.T.Shared",
		"sets a.T.N", "takes the address of a.T.N",
	}
	if !slices.Equal(got, want) {
		t.Errorf("foreign writes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if f.chains["b"] != 1 || len(f.chains) != 1 {
		t.Error("long chains", f.chains)
	}
	if f.exported["a.Wide"] != 9 || len(f.exported) != 1 {
		t.Error("exported fields", f.exported)
	}
	if f.shared["a.T.Shared"] != 3 || len(f.shared) != 1 {
		t.Error("fields that more than two files write", f.shared)
	}
}

// Only what has no method that changes it may be called plain.
func TestAPlainValueHasNoMethodThatChangesIt(t *testing.T) {
	if _, err := fixture("a.T"); err == nil || !strings.Contains(err.Error(), "its method Began changes it") {
		t.Error(err)
	}
	if _, err := fixture("a.Missing"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Error(err)
	}
}

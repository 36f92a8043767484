package docstest

import "testing"

// failed notes what Says reports.
type failed struct {
	testing.TB
	errors int
}

func (f *failed) Helper()               {}
func (f *failed) Errorf(string, ...any) { f.errors++ }

func TestSaysComparesSentencesAcrossLines(t *testing.T) {
	var f failed
	Says(&f, "README.md", "retryproxy is a reverse proxy\n  that runs beside %s application", "an")
	if f.errors != 0 {
		t.Error("a sentence of README.md was not found")
	}
	Says(&f, "README.md", "retryproxy is %d reverse proxies", 2)
	if f.errors != 1 {
		t.Error("a sentence that README.md does not have was found")
	}
}

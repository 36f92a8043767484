package series

import (
	"strings"
	"testing"
)

func TestSeriesAreRead(t *testing.T) {
	s, err := Read(strings.NewReader("# HELP x y\nretryproxy_a_total{route=\"r\",kind=\"x y\"} 2\nretryproxy_a_total{route=\"s\",kind=\"z\"} 3\nretryproxy_a_total_more 9\ngo_goroutines 1e1\n"))
	if err != nil || s.Sum("a_total") != 5 || s.By("a_total", "kind")["x y"] != 2 || s["go_goroutines"] != 10 {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := Read(strings.NewReader("a b\n")); err == nil {
		t.Error("a value that is no number is accepted")
	}
}

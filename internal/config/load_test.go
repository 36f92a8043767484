package config

import "testing"

func TestGetenvReadsAnEnvironment(t *testing.T) {
	get := Getenv([]string{"A=1", "AA=2=3", "A=4"})
	for name, want := range map[string]string{"A": "1", "AA": "2=3", "B": ""} {
		if got := get(name); got != want {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
}

package strategy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// A field of backoff.Options without a key here could not be set.
func TestEveryOptionHasAKey(t *testing.T) {
	values := map[string]string{"base": "1s", "factor": "3", "max": "1m", "jitter": "0.5", "spread": "2s", "ratio": "0.1", "slots": "7", "stay": "true", "extra": "1ms"}
	var o backoff.Options
	for _, key := range Keys() {
		if err := Set(&o, key, values[key]); err != nil {
			t.Error(err)
		}
	}
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("no key sets %s", v.Type().Field(i).Name)
		}
	}
	want := backoff.Options{Base: time.Second, Factor: 3, Max: time.Minute, Jitter: 0.5, Spread: 2 * time.Second, Ratio: 0.1, Slots: 7, Stay: true, Extra: time.Millisecond}
	if o != want {
		t.Errorf("%+v", o)
	}
}

// Uses is true exactly if an option changes what a strategy does.
func TestUsesIsTrue(t *testing.T) {
	other := map[string]string{"base": "77ms", "factor": "7", "max": "80ms", "jitter": "0.7", "spread": "7s", "ratio": "7", "slots": "7", "stay": "true", "extra": "7s"}
	for _, name := range backoff.Strategies() {
		plain, err := backoff.New(name, backoff.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range Keys() {
			var o backoff.Options
			if err := Set(&o, key, other[key]); err != nil {
				t.Fatal(err)
			}
			with, err := backoff.New(name, o)
			if err != nil {
				t.Fatal(err)
			}
			if differs := !reflect.DeepEqual(plain, with); differs != Uses(name, key) {
				t.Errorf("%s, %s: makes a difference: %v, Uses: %v", name, key, differs, Uses(name, key))
			}
		}
	}
}

func TestSpecs(t *testing.T) {
	for text, want := range map[string]string{
		"slots:base=10ms:slots=10": "slots base=10ms slots=10 reset max=32s",
		"full-jitter":              "full-jitter base=100ms factor=2 max=32s",
		"fixed:base":               "fixed:base: expected NAME:option=value",
		"fixed:base=1s:base=2s":    "fixed:base=1s:base=2s: base is given twice",
		"fixed:base=1":             "fixed: base=1: expected a duration above 0 with its unit, such as 250ms, 10s or 2m",
		"fixed:slots=3":            "slots=3: the strategy fixed has no such option; its options are base, extra",
		"fixed:colour=red":         "colour=red: the strategy fixed has no such option; its options are base, extra",
		"slots:slots=33":           "backoff slots: slots 33 is not within 1 to 32",
	} {
		s, err := ParseSpec(text)
		var made backoff.Strategy
		if err == nil {
			made, err = s.New()
		}
		got := fmt.Sprint(made)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestKeysOfAStrategy(t *testing.T) {
	for name, want := range map[string]string{"slots": "base max slots stay extra", "none": "extra", "nonsense": ""} {
		if got := strings.Join(KeysOf(name), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if Uses("fixed", "nonsense") {
		t.Error("nonsense is known")
	}
}

func TestSetRefuses(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"base", "0s", "base=0s: expected a duration above 0"},
		{"base", "5", "expected a duration"},
		{"max", "-1s", "expected a duration"},
		{"extra", "", "expected a duration"},
		{"factor", "0", "factor=0: expected a number above 0"},
		{"ratio", "NaN", "expected a number"},
		{"jitter", "much", "expected a number"},
		{"slots", "0", "expected a whole number"},
		{"slots", "1.5", "expected a whole number"},
		{"stay", "maybe", "expected true or false"},
		{"bass", "1s", `unknown option "bass"; the options are base, factor`},
	} {
		var o backoff.Options
		if err := Set(&o, c.key, c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v, expected %q", c.key, c.value, err, c.want)
		}
		if o != (backoff.Options{}) {
			t.Errorf("%s=%s set %+v", c.key, c.value, o)
		}
	}
}

package policy

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

func mustFaultInjection(t testing.TB, s string) *FaultInjector {
	t.Helper()
	f, err := ParseFaultInjection(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFaultsAreDrawnAsOftenAsAsked(t *testing.T) {
	const draws = 1_000_000
	f := mustFaultInjection(t, "503:10%, 429:0.5%,reset:1%,delay:200ms:5%,delay:1s:20%")
	r := rand.New(rand.NewPCG(1, 2))
	got := map[Fault]int{}
	for range draws {
		d := f.Draw(r)
		got[Fault{Status: d.Status, Reset: d.Reset}]++
		got[Fault{Delay: d.Delay}]++
	}
	for fault, want := range map[Fault]float64{
		{Status: 503}: 0.10, {Status: 429}: 0.005, {Reset: true}: 0.01, {Delay: 200 * time.Millisecond}: 0.05, {Delay: time.Second}: 0.20,
		{}: 0.885 + 0.75,
	} {
		// At most seven standard deviations of a binomial.
		if n := float64(got[fault]) / draws; math.Abs(n-want) > 7*math.Sqrt(0.25/draws) {
			t.Errorf("%+v: drawn %.4f of the time, want %.4f", fault, n, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("drawn: %v", got)
	}
}

// edge always draws the same number.
type edge struct {
	backoff.Rand
	n int64
}

func (e edge) Int64N(int64) int64 { return e.n }

func TestSharesHaveSharpEdges(t *testing.T) {
	f := mustFaultInjection(t, "503:10%,reset:0.5%")
	for n, want := range map[int64]Fault{0: {Status: 503}, 99_999: {Status: 503}, 100_000: {Reset: true}, 104_999: {Reset: true}, 105_000: {}, 999_999: {}} {
		if got := f.Draw(edge{n: n}); got != want {
			t.Errorf("%d: %+v, want %+v", n, got, want)
		}
	}
}

func TestWholeSharesHitAlwaysAndOffNever(t *testing.T) {
	all, off := mustFaultInjection(t, "502:99.9999%,reset:0.0001%"), mustFaultInjection(t, "off")
	for range 10_000 {
		if d := all.Draw(backoff.Shared()); !d.Breaks() || d.Delay != 0 {
			t.Fatalf("drew %+v", d)
		}
		if d := off.Draw(backoff.Shared()); d != (Fault{}) {
			t.Fatalf("off drew %+v", d)
		}
	}
	if off != nil || off.String() != "off" {
		t.Errorf("off is %v", off)
	}
}

func TestTheSameSeedDrawsTheSameFaults(t *testing.T) {
	f := mustFaultInjection(t, "503:30%,delay:5ms:50%")
	a, b := rand.New(rand.NewPCG(7, 7)), rand.New(rand.NewPCG(7, 7))
	for range 1000 {
		if f.Draw(a) != f.Draw(b) {
			t.Fatal("they differ")
		}
	}
}

func TestParseFaultsSaysAllThatIsWrong(t *testing.T) {
	for s, want := range map[string][]string{
		"":                          {"no percentage"},
		"503":                       {"no percentage"},
		"503:10":                    {`"10" is no percentage`},
		"503:0%":                    {"above 0"},
		"503:101%":                  {"up to 100"},
		"503:0.00001%":              {"four decimals"},
		"503:-1%":                   {"no percentage above 0"},
		"200:10%":                   {"not within 400 to 599"},
		"600:10%":                   {"not within 400 to 599"},
		"teapot:10%":                {"neither a status code, reset nor delay:TIME"},
		"delay:5%":                  {"neither a status code"},
		"delay:fast:5%":             {`"fast" is no time`},
		"delay:0s:5%":               {"no time above 0"},
		"delay:2h:5%":               {"no time above 0 and up to 1h"},
		"503:10%,503:20%":           {"the same fault is there twice"},
		"503:60%,reset:40.0001%":    {"statuses and resets add up to 100.0001%"},
		"delay:1s:60%,delay:2s:41%": {"delays add up to 101%"},
		"503:10%,":                  {"no percentage"},
		"999:1%,reset:x%,delay:1%":  {"999", "reset:x%", "delay:1%"},
	} {
		f, err := ParseFaultInjection(s)
		if err == nil || f != nil {
			t.Errorf("%q: %v, %v", s, f, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q says nothing of %q", s, err, part)
			}
		}
	}
}

func TestFaultsAreWrittenAsTheyAreRead(t *testing.T) {
	for s, want := range map[string]string{
		"off": "off", "503:10%,reset:1%,delay:200ms:5%": "503:10%,reset:1%,delay:200ms:5%", " 400:1% , delay:1h:100%": "400:1%,delay:1h:100%", "599:100%,delay:1ms:100%": "599:100%,delay:1ms:100%",
	} {
		f := mustFaultInjection(t, s)
		if f.String() != want || mustFaultInjection(t, f.String()).String() != want {
			t.Errorf("%q became %q", s, f)
		}
	}
}

package plan

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

var update = flag.Bool("update", false, "write the golden files anew")

func parse(t *testing.T, w Wish) []Candidate {
	t.Helper()
	candidates, err := Parse(w)
	if err != nil {
		t.Fatal(err)
	}
	return candidates
}

func render(t *testing.T, p *Plan, v View, s terminal.Screen) string {
	t.Helper()
	var b strings.Builder
	p.Text(&b, v, s)
	return b.String()
}

// batch returns a route of the batch profile.
func batch(t *testing.T) Candidate {
	t.Helper()
	c, err := FromRoute(config.Defaults("batch"))
	if err != nil {
		t.Fatal(err)
	}
	c.Label, c.Route = "route nightly", "nightly"
	return c
}

func TestTextGolden(t *testing.T) {
	log, both := View{Log: true}, View{Linear: true, Log: true, Total: true}
	plain := terminal.Screen{Width: 80}
	for name, got := range map[string]string{
		"default.txt":  render(t, Make(parse(t, Wish{Retries: 4}), Options{Seed: 1}), log, plain),
		"ratio.txt":    render(t, Make(parse(t, Wish{Ratios: []string{"1,0.1"}, Retries: 5}), Options{Elapsed: 1000 * time.Second}), log, plain),
		"compare.txt":  render(t, Make(parse(t, Wish{Backoffs: []string{"normal:base=1s:factor=1.5:max=5m,slots", "none"}, Retries: 6, RequestTimeout: 5 * time.Second}), Options{Attempt: 200 * time.Millisecond, Elapsed: 30 * time.Second, Seed: 7}), both, plain),
		"route.txt":    render(t, Make([]Candidate{batch(t)}, Options{}), log, plain),
		"terminal.txt": render(t, Make(parse(t, Wish{Backoffs: []string{"fixed,ratio"}, Retries: 3}), Options{}), log, terminal.Screen{Width: 60, Height: 8, Color: true, Unicode: true}),
		"nothing.txt":  render(t, Make(parse(t, Wish{}), Options{}), log, plain),
	} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || got != string(want) {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// The published numbers of the strategy ratio, with a = 1 s.
func TestRatioAsPublished(t *testing.T) {
	near := func(what string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s: %v, expected %v", what, got, want)
		}
	}
	planned := func(elapsed time.Duration, ratios string) *Plan {
		return Make(parse(t, Wish{Ratios: []string{ratios}, Retries: 49}), Options{Elapsed: elapsed})
	}
	const at = 1023 * time.Second
	l := planned(at, "1").Lines[0]
	r, _ := l.ratio()
	near("r=2, next wait after 1023", l.Reach.NextWait.Mean, 1024, 0)
	near("r=2, wait by the formula", r.After(at).Seconds(), 1024, 0)
	near("r=2, n", l.Reach.Retries.Mean, 10, 0)
	near("r=2, n by the formula", r.Tries(at), 10, 1e-9)
	near("r=2, a success at 1030 is noticed at", planned(1030*time.Second, "1").Lines[0].Reach.Noticed.Mean, 2047, 0)

	p := planned(1000*time.Second, "1,0.1")
	l = p.Lines[1]
	near("r=1.1, T_48", l.Rows[47].Total.Mean.Seconds(), 960.172, 5e-4)
	near("r=1.1, next wait", l.Rows[48].Wait.Mean.Seconds(), 97.017, 5e-4)
	near("r=1.1, last begun", l.Reach.LastBegan.Mean, 960.172, 5e-4)
	near("r=1.1, next wait at 1000", l.Reach.NextWait.Mean, 97.017, 5e-4)
	near("2 -> 1.1 in theory", p.Changes[0].LongRun, 7.27, 5e-3)
	near("2 -> 1.1 at 1000", p.Changes[0].Within, 5, 0.2)
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		wish Wish
		want []string // label, then the strategy with its options
	}{
		"nothing":             {Wish{}, []string{"full-jitter", "full-jitter base=100ms factor=2 max=32s"}},
		"a list":              {Wish{Backoffs: []string{"none, fixed", "slots"}}, []string{"none", "none", "fixed", "fixed base=100ms", "slots", "slots base=10ms slots=10 reset max=32s"}},
		"own options":         {Wish{Backoffs: []string{"fixed:base=3s"}}, []string{"fixed base=3s", "fixed base=3s"}},
		"ratios alone":        {Wish{Ratios: []string{"1,0.5"}}, []string{"ratio 1", "ratio base=1s ratio=1 max=1h0m0s", "ratio 0.5", "ratio base=1s ratio=0.5 max=1h0m0s"}},
		"ratios for ratio":    {Wish{Backoffs: []string{"ratio,none"}, Ratios: []string{"0.5"}}, []string{"none", "none", "ratio 0.5", "ratio base=1s ratio=0.5 max=1h0m0s"}},
		"a ratio of its own":  {Wish{Backoffs: []string{"ratio:ratio=3"}, Ratios: []string{"0.5"}}, []string{"ratio ratio=3", "ratio base=1s ratio=3 max=1h0m0s", "ratio 0.5", "ratio base=1s ratio=0.5 max=1h0m0s"}},
		"extra and stay":      {Wish{Backoffs: []string{"slots:stay=true:extra=5ms"}}, []string{"slots stay=true extra=5ms", "slots base=10ms slots=10 stay max=32s plus up to 5ms"}},
		"several of one kind": {Wish{Backoffs: []string{"normal:base=100ms:factor=2.7:max=10m,normal:base=1s:factor=1.5:max=5m"}}, []string{"normal base=100ms factor=2.7 max=10m", "normal base=100ms factor=2.7 jitter=0.1 max=10m0s", "normal base=1s factor=1.5 max=5m", "normal base=1s factor=1.5 jitter=0.1 max=5m0s"}},
	} {
		candidates, err := Parse(c.wish)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, x := range candidates {
			got = append(got, x.Label, x.describe())
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		wish Wish
		want []string
	}{
		"unknown":            {Wish{Backoffs: []string{"bogus,fixed"}}, []string{`unknown backoff "bogus"; the strategies are additive`}},
		"another's word":     {Wish{Backoffs: []string{"exponential"}}, []string{`"exponential": did you mean full-jitter?`}},
		"empty":              {Wish{Backoffs: []string{""}}, []string{`unknown backoff ""`}},
		"no value":           {Wish{Backoffs: []string{"fixed:base"}}, []string{"expected NAME:option=value"}},
		"an option twice":    {Wish{Backoffs: []string{"fixed:base=1s:base=2s"}}, []string{"base is given twice"}},
		"a strategy twice":   {Wish{Backoffs: []string{"fixed,fixed"}}, []string{"fixed is given twice"}},
		"unknown option":     {Wish{Backoffs: []string{"fixed:bass=1s"}}, []string{"bass=1s: the strategy fixed has no such option"}},
		"an option not used": {Wish{Backoffs: []string{"fixed:jitter=0.1"}}, []string{"the strategy fixed has no such option; its options are base, extra"}},
		"not a value":        {Wish{Backoffs: []string{"fixed:base=soon"}}, []string{"base=soon: expected a duration"}},
		"out of range":       {Wish{Backoffs: []string{"normal:jitter=2"}}, []string{"jitter 2 is not within"}},
		"base above max":     {Wish{Backoffs: []string{"full-jitter:base=2s:max=1s"}}, []string{"base 2s is above max 1s"}},
		"not a ratio":        {Wish{Ratios: []string{"1,half"}}, []string{"ratio: ratio=half: expected a number"}},
		"everything at once": {Wish{Backoffs: []string{"bogus,fixed:jitter=0.1"}}, []string{"bogus", "the strategy fixed has no such option; its options are base, extra"}},
		"too many":           {Wish{Ratios: []string{"1,2,3,4,5,6,7,8,9,10,11,12,13"}}, []string{"13 strategies, expected at most 12"}},
	} {
		_, err := Parse(c.wish)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, expected %q", name, err, want)
			}
		}
	}
}

func TestWorstOfARouteIsThatOfItsPolicy(t *testing.T) {
	c := batch(t)
	p := policy.Policy{MaxRetries: c.Retries, Backoff: c.Backoff}
	if got, want := Make([]Candidate{c}, Options{}).Lines[0].Worst, p.Worst(c.RequestTimeout, c.AttemptTimeout); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// A strategy that the user named has no attempt timeout: its slow case is attempts of
// Options.Attempt with the longest waits.
func TestWorstOfAStrategy(t *testing.T) {
	for name, c := range map[string]struct {
		wish    Wish
		attempt time.Duration
		want    policy.Worst
	}{
		"no bound":                 {Wish{Backoffs: []string{"fixed:base=1s"}, Retries: 3}, 0, policy.Worst{Total: backoff.Forever, Attempts: 4, SlowAttempts: 4, LastBegins: 3 * time.Second}},
		"slow attempts":            {Wish{Backoffs: []string{"fixed:base=1s"}, Retries: 3}, time.Second, policy.Worst{Total: backoff.Forever, Attempts: 4, SlowAttempts: 4, LastBegins: 6 * time.Second}},
		"a request timeout":        {Wish{Backoffs: []string{"fixed:base=1s"}, Retries: 3, RequestTimeout: 4500 * time.Millisecond}, time.Second, policy.Worst{Total: 4500 * time.Millisecond, Attempts: 4, SlowAttempts: 3, LastBegins: 4 * time.Second}},
		"a request that just ends": {Wish{Backoffs: []string{"fixed:base=1s"}, Retries: 3, RequestTimeout: 3 * time.Second}, 0, policy.Worst{Total: 3 * time.Second, Attempts: 3, SlowAttempts: 3, LastBegins: 2 * time.Second}},
	} {
		if got := Make(parse(t, c.wish), Options{Attempt: c.attempt}).Lines[0].Worst; got != c.want {
			t.Errorf("%s: %+v, expected %+v", name, got, c.want)
		}
	}
}

// A retry is only certain without a retry budget.
func TestMadeKnowsTheBudget(t *testing.T) {
	c := batch(t)
	c.Budget = &budget.Config{Ratio: 0.05, MinPerSecond: 0.5, Burst: 3}
	l := Make([]Candidate{c}, Options{}).Lines[0]
	if got := l.made(l.Rows[0]); got != withToken {
		t.Errorf("with a budget: %s", got)
	}
	text := render(t, &Plan{Lines: []Line{l}}, View{Log: true}, terminal.Screen{Width: 80})
	if want := "a retry is made only with a token of the retry budget, which all requests share: 3 tokens at first, then 0.05 per request and 0.5 per second\n"; !strings.Contains(text, want) {
		t.Errorf("%q is missing in\n%s", want, text)
	}
	c.Budget = nil
	l = Make([]Candidate{c}, Options{}).Lines[0]
	if got := l.made(l.Rows[0]); got != always {
		t.Errorf("without a budget: %s", got)
	}
	if text = render(t, &Plan{Lines: []Line{l}}, View{Log: true}, terminal.Screen{Width: 80}); strings.Contains(text, "token") {
		t.Errorf("no budget, but\n%s", text)
	}
}

func TestMadeWithinTheBounds(t *testing.T) {
	l := Make(parse(t, Wish{Backoffs: []string{"equal-jitter:base=1s"}, Retries: 4, RequestTimeout: 4 * time.Second}), Options{}).Lines[0]
	// The longest waits are 1, 2, 4 and 8 s and the shortest are half of them. So the retries begin
	// within 0.5..1, 1.5..3, 3.5..7 and 7.5..15 s.
	for i, want := range []making{withToken, withToken, maybe, never} {
		if got := l.made(l.Rows[i]); got != want {
			t.Errorf("retry %d: %s, expected %s", i+1, got, want)
		}
	}
}

func TestReachCountsWhatAWalkFinds(t *testing.T) {
	b, err := backoff.New("fixed", backoff.Options{Base: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	one := func(v float64) Spread { return Spread{v, v, v} }
	for _, c := range []struct {
		elapsed, attempt time.Duration
		want             Reach
	}{
		{10 * time.Second, 0, Reach{Retries: one(3), LastBegan: one(9), NextWait: one(3), Noticed: one(12), Late: one(2)}},
		{9 * time.Second, 0, Reach{Retries: one(3), LastBegan: one(9), NextWait: one(3), Noticed: one(9), Late: one(0)}},
		{9 * time.Second, time.Second, Reach{Retries: one(2), LastBegan: one(8), NextWait: one(3), Noticed: one(12), Late: one(3)}},
		{time.Second, 0, Reach{Retries: one(0), LastBegan: one(0), NextWait: one(3), Noticed: one(3), Late: one(2)}},
	} {
		if got := reach(b, Options{Elapsed: c.elapsed, Attempt: c.attempt}); !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%v: not as expected", c)
		}
	}
}

func TestReachOfARandomStrategy(t *testing.T) {
	b, err := backoff.New("full-jitter", backoff.Options{Base: 2 * time.Second, Max: 2 * time.Second}) // always U(0, 2 s)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Elapsed: time.Hour, Seed: 3}
	r := reach(b, o)
	// Renewal theory: after a long time the current wait is longer than usual (mean E(w^2)/E(w) =
	// 4/3 s), and half of it remains.
	for what, c := range map[string][3]float64{
		"retries":   {r.Retries.Mean, 3600, 10},
		"next wait": {r.NextWait.Mean, 4.0 / 3, 0.05},
		"late":      {r.Late.Mean, 2.0 / 3, 0.05},
	} {
		if math.Abs(c[0]-c[1]) > c[2] {
			t.Errorf("%s: %v, expected %v", what, c[0], c[1])
		}
	}
	if !r.random() || r.Late.Low < 0 || r.Late.Low >= r.Late.Mean || r.Late.High <= r.Late.Mean || r.Late.High > 2 {
		t.Errorf("%+v", r)
	}
	if again := reach(b, o); !reflect.DeepEqual(again, r) {
		t.Error("the same seed gave something else")
	}
	if other := reach(b, Options{Elapsed: o.Elapsed, Seed: 4}); reflect.DeepEqual(other, r) {
		t.Error("another seed gave the same")
	}
}

func TestReachEnds(t *testing.T) {
	p := Make(parse(t, Wish{Backoffs: []string{"none"}, Retries: 1}), Options{Elapsed: time.Second})
	if !p.Lines[0].Reach.Endless {
		t.Error("retries without a wait come to an end")
	}
	if got := render(t, p, View{Log: true}, terminal.Screen{Width: 80}); !strings.Contains(got, "over 100000") {
		t.Error(got)
	}
}

func TestClosedFormsSayWhatTheyLeaveOut(t *testing.T) {
	for elapsed, want := range map[time.Duration]bool{time.Minute: false, 2 * time.Hour: true} {
		got := render(t, Make(parse(t, Wish{Ratios: []string{"1"}}), Options{Elapsed: elapsed}), View{}, terminal.Screen{})
		if strings.Contains(got, "no wait is longer than 1h") != want {
			t.Errorf("%v: %s", elapsed, got)
		}
	}
}

func TestSameSeedSamePlan(t *testing.T) {
	plan := func(seed uint64) string {
		return render(t, Make(parse(t, Wish{Retries: 4}), Options{Seed: seed, Elapsed: time.Second}), View{Log: true}, terminal.Screen{})
	}
	first := plan(1)
	if again := plan(1); again != first {
		t.Error("the same seed gives two plans")
	}
	if plan(2) == first {
		t.Error("the seed makes no difference")
	}
}

func TestFigure(t *testing.T) {
	two := Make(parse(t, Wish{Backoffs: []string{"full-jitter,fixed:base=1s"}, Retries: 5}), Options{})
	f := two.Figure(View{Linear: true, Log: true})
	if err := f.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(f.Panels) != 2 || f.Panels[0].Y.Log || !f.Panels[1].Y.Log {
		t.Errorf("panels %+v", f.Panels)
	}
	jitter, fixed := f.Panels[0].Series[0], f.Panels[0].Series[1]
	if len(jitter.High) != 5 || jitter.High[4] != 1.6 || fixed.High != nil || fixed.Y[4] != 1 {
		t.Errorf("%+v\n%+v", jitter, fixed)
	}
	if total := two.Figure(View{Log: true, Total: true}); total.Panels[0].Series[1].Y[4] != 5 || total.Title == f.Title {
		t.Errorf("%+v", total)
	}
	many := Make(parse(t, Wish{Backoffs: []string{"full-jitter,equal-jitter,additive"}, Retries: 5}), Options{})
	if s := many.Figure(View{Log: true}).Panels[0].Series[0]; s.High != nil {
		t.Error("bands over each other")
	}
	if Make(parse(t, Wish{}), Options{}).Drawable() {
		t.Error("no retries can be drawn")
	}
}

func TestFigureIsReadByTheCommandThatDraws(t *testing.T) {
	p := Make(parse(t, Wish{Backoffs: []string{"full-jitter,slots,none"}, Retries: 12}), Options{Elapsed: time.Minute, Attempt: time.Millisecond})
	want := p.Figure(View{Linear: true, Log: true})
	text, err := json.Marshal(plot.Document{Figure: want})
	if err != nil {
		t.Fatal(err)
	}
	f, err := plot.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("%+v", f)
	}
}

func TestLoadOfARoute(t *testing.T) {
	bound, free := batch(t), batch(t)
	free.Budget = nil
	p := Make([]Candidate{bound, free}, Options{})
	for i, want := range []string{"x1.2 plus up to 10 retries at once; without its retry budget x9", "x9, because there is no retry budget"} {
		if got := p.Lines[i].load(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1500 * time.Microsecond: "1.5ms", 999 * time.Millisecond: "999ms", 1559 * time.Millisecond: "1.559s",
		960172337701: "960.172s", 90 * time.Minute: "1h30m", backoff.Forever: "no end",
	} {
		if got := span(d); got != want {
			t.Errorf("%d: %s, expected %s", d, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("normal:base=1s:factor=1.5:max=5m,slots:base=5s", "1,0.1")
	f.Add("ratio:base=1ns", "1e-9")
	f.Add("decorrelated:base=8760h:factor=1000:max=8760h", "")
	f.Fuzz(func(t *testing.T, backoffs, ratio string) {
		candidates, err := Parse(Wish{Backoffs: []string{backoffs}, Ratios: []string{ratio}, Retries: 3})
		if err != nil {
			return
		}
		p := Make(candidates, Options{Elapsed: time.Second})
		for _, l := range p.Lines {
			for i, r := range l.Rows {
				if r.Wait.Min < 0 || r.Wait.Min > r.Wait.Max || i > 0 && r.Total.Min < l.Rows[i-1].Total.Min {
					t.Fatalf("%s: %+v", l.Label, l.Rows)
				}
			}
		}
		if figure := p.Figure(View{Linear: true, Log: true}); figure.Validate() == nil {
			render(t, p, View{Linear: true, Log: true}, terminal.Screen{})
		}
	})
}

func TestAnHourKeepsItsSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour + 8*time.Minute + 15*time.Second: "1h8m15s",
		time.Hour + 8*time.Minute:                  "1h8m",
		time.Hour:                                  "1h",
		59 * time.Minute:                           "3540s",
	} {
		if got := span(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

package ratelimit

import "math"

// The processes of a key share what they learn of how its upstream counts. Each of them sees few of the
// responses: of 50 processes, every one would begin with estimates that the others have corrected already.

// The ratios of used to estimated tokens.
const (
	ratioInput = iota
	ratioOutput
	ratioTokens // by the headers of responses, as the two below
	ratioInputTokens
	ratioOutputTokens
	numRatios
)

// ratioCounted returns the ratio of a kind that counts tokens, by headers.
func ratioCounted(k Kind) int { return ratioTokens + int(k-Tokens) }

// ratio returns one of the ratios.
func (u *usage) ratio(i int) *calibration {
	switch i {
	case ratioInput:
		return &u.input
	case ratioOutput:
		return &u.output
	}
	return &u.counted[Tokens+Kind(i-ratioTokens)]
}

// Ratio is what attempts were estimated to use, and what they used. Older attempts count for less.
type Ratio struct{ Estimated, Used float64 }

// UsageState is what is known of how the upstream of a key counts. The zero value knows nothing.
type UsageState struct {
	Ratios  [numRatios]Ratio
	Typical float64 // mean output
	Doubt   float64 // see usage
}

// UsageNews is what one process learned of it since its last Account.
type UsageNews struct {
	Ratios [numRatios]struct {
		Attempts int64
		Ratio
	}
	Outputs            int64   // that are in Typical
	Typical            float64 // what they add to the mean
	Rejected, Accepted int64   // attempts that tell about doubt
}

func (u *usage) rejected(n int64) { u.doubt = min(1, u.doubt+moreDoubt*float64(n)) }

func (u *usage) accepted(n int64) { u.doubt *= math.Pow(lessDoubt, float64(n)) }

// TakeNews returns what was learned since the last call.
func (q *Buckets) TakeNews() UsageNews {
	news := q.usage.news
	q.usage.news = UsageNews{}
	return news
}

// Merge adds what a process learned. In production a script in the engine does that; a test compares the
// two.
func (s *UsageState) Merge(n *UsageNews) {
	u := s.usage()
	u.merge(n)
	*s = u.state()
}

func (u *usage) merge(n *UsageNews) {
	for i := range n.Ratios {
		r, c := &n.Ratios[i], u.ratio(i)
		c.fade(r.Attempts)
		c.estimated, c.used = c.estimated+r.Estimated, c.used+r.Used
	}
	u.typical = u.typical*math.Pow(typicalMemory, float64(n.Outputs)) + n.Typical
	u.rejected(n.Rejected)
	u.accepted(n.Accepted)
}

// state returns what u knows.
func (u *usage) state() (s UsageState) {
	for i := range s.Ratios {
		c := u.ratio(i)
		s.Ratios[i] = Ratio{c.estimated, c.used}
	}
	s.Typical, s.Doubt = u.typical, u.doubt
	return s
}

// usage returns what s says, of which only possible values are believed.
func (s *UsageState) usage() (u usage) {
	for i, r := range s.Ratios {
		if r.Estimated > 0 && r.Estimated <= maxLimit && r.Used >= 0 {
			*u.ratio(i) = calibration{r.Estimated, min(r.Used, r.Estimated*mostUsed)}
		}
	}
	if s.Typical > 0 {
		u.typical = min(s.Typical, maxLimit)
	}
	if s.Doubt > 0 {
		u.doubt = min(s.Doubt, 1)
	}
	return u
}

// importUsage replaces the own knowledge with that of all processes. What they are not told yet counts
// too. An engine that knows nothing has forgotten it.
func (q *Buckets) importUsage(s *UsageState) {
	if *s == (UsageState{}) {
		return
	}
	news := q.usage.news
	q.usage = s.usage()
	q.usage.merge(&news)
	q.usage.news = news
}

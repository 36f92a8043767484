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
func (u *usage) ratio(i int) *Ratio {
	switch i {
	case ratioInput:
		return &u.input
	case ratioOutput:
		return &u.output
	}
	return &u.counted[Tokens+Kind(i-ratioTokens)]
}

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

// TakeNews returns what was learned since the last call. Import takes the answer; call RestoreNews if there is
// none.
func (q *Buckets) TakeNews() UsageNews {
	news := q.usage.news
	q.usage.told.add(&news)
	q.usage.news = UsageNews{}
	return news
}

// RestoreNews lets TakeNews return once more what it returned since the last Import. If only the answer was
// lost, it counts twice: that changes no ratio by much.
func (q *Buckets) RestoreNews() {
	news := q.usage.told
	news.add(&q.usage.news)
	q.usage.news, q.usage.told = news, UsageNews{}
}

// add adds what was learned after n.
func (n *UsageNews) add(newer *UsageNews) {
	for i := range n.Ratios {
		r, add := &n.Ratios[i], &newer.Ratios[i]
		r.join(add.Attempts, add.Ratio)
		r.Attempts += add.Attempts
	}
	n.Typical = joinTypical(n.Typical, newer.Outputs, newer.Typical)
	n.Outputs, n.Rejected, n.Accepted = n.Outputs+newer.Outputs, n.Rejected+newer.Rejected, n.Accepted+newer.Accepted
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
		u.ratio(i).join(n.Ratios[i].Attempts, n.Ratios[i].Ratio)
	}
	u.typical = joinTypical(u.typical, n.Outputs, n.Typical)
	u.rejected(n.Rejected)
	u.accepted(n.Accepted)
}

// state returns what u knows.
func (u *usage) state() (s UsageState) {
	for i := range s.Ratios {
		s.Ratios[i] = *u.ratio(i)
	}
	s.Typical, s.Doubt = u.typical, u.doubt
	return s
}

// usage returns what s says, of which only possible values are believed.
func (s *UsageState) usage() (u usage) {
	for i, r := range s.Ratios {
		if r.Estimated > 0 && r.Estimated <= maxLimit && r.Used >= 0 {
			*u.ratio(i) = Ratio{r.Estimated, min(r.Used, r.Estimated*mostUsed)}
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
// too. An engine that knew nothing before the question has forgotten it.
func (q *Buckets) importUsage(s *UsageState) {
	u := &q.usage
	news, told := u.news, u.told
	u.told = UsageNews{}
	switch {
	case *s == (UsageState{Doubt: s.Doubt}): // nor was it told more than doubt
		u.doubt = max(u.doubt, s.usage().doubt)
	case s.isOnly(&told):
		u.remind(s)
	default:
		*u = s.usage()
		u.merge(&news)
		u.news = news
	}
}

// isOnly reports whether the engine knows only what n told it. It is true for one process, as the next one
// finds what n left.
func (s *UsageState) isOnly(n *UsageNews) bool {
	for i := range s.Ratios {
		if s.Ratios[i] != n.Ratios[i].Ratio {
			return false
		}
	}
	return s.Typical == n.Typical
}

// remind adds to the news what the engine lacks. No attempts are added, so that nothing else fades.
func (u *usage) remind(s *UsageState) {
	lacks := func(known, told, memory float64, n int64) float64 {
		return max(0, known-told*math.Pow(memory, float64(n)))
	}
	for i := range u.news.Ratios {
		n, c := &u.news.Ratios[i], u.ratio(i)
		n.Estimated = lacks(c.Estimated, s.Ratios[i].Estimated, ratioMemory, n.Attempts)
		n.Used = lacks(c.Used, s.Ratios[i].Used, ratioMemory, n.Attempts)
	}
	u.news.Typical = lacks(u.typical, s.Typical, typicalMemory, u.news.Outputs)
	u.news.Rejected = int64(math.Round(max(0, u.doubt-s.Doubt) / moreDoubt))
}

package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/internal/labels"
)

// FaultKind is what an injected fault does to an attempt. Its String is the value of the
// metric label `kind`.
type FaultKind uint8

// The kinds, a closed set.
const (
	FaultStatus FaultKind = iota
	FaultReset
	FaultDelay
	numFaultKinds
)

// NumFaultKinds is the number of kinds, for arrays indexed by FaultKind.
const NumFaultKinds = int(numFaultKinds)

var faultKindTexts = [numFaultKinds]labels.Text{
	FaultStatus: {Label: "status", Explain: "The attempt got a response with a failing status, made here."},
	FaultReset:  {Label: "reset", Explain: "The attempt lost its connection after the request was sent."},
	FaultDelay:  {Label: "delay", Explain: "The attempt was sent later, as if the upstream took so much longer."},
}

// String returns the metric label, or "invalid" for a value outside the set.
func (k FaultKind) String() string { return labels.Lookup(faultKindTexts[:], int(k)).Label }

// Explain returns one sentence for a reader of metrics.
func (k FaultKind) Explain() string { return labels.Lookup(faultKindTexts[:], int(k)).Explain }

// AllFaultKinds lists the set in order. The slice belongs to the caller.
func AllFaultKinds() []FaultKind { return labels.Sequence[FaultKind](0, numFaultKinds) }

// Fault is the fault of one attempt; the zero value is none. Status and Reset exclude each
// other. Delay applies before either.
type Fault struct {
	Status int           // 400..599: the status of a response made here; 0: none
	Reset  bool          // the connection is lost after the request was sent
	Delay  time.Duration // 0 or more
}

// Breaks reports whether the fault keeps the attempt from reaching the upstream.
func (f Fault) Breaks() bool { return f.Status != 0 || f.Reset }

// FaultInjector draws faults, for trying out policies. Each attempt draws at most one
// status or reset, and independently at most one delay. A nil FaultInjector draws nothing.
// It does not change after ParseFaultInjection and is safe for concurrent use.
type FaultInjector struct {
	ends   []faultShare // statuses and resets: one draw
	delays []faultShare // delays: another draw
	text   string
}

// faultShare is a fault and the number of attempts in wholeShare that draw it.
type faultShare struct {
	Fault
	share int64
}

// wholeShare is the share of all attempts: percentages have up to four decimals.
const (
	wholeShare = 1_000_000
	onePercent = wholeShare / 100
)

// The bounds of a fault.
const (
	minFaultStatus = 400
	maxFaultStatus = 599
	maxFaultDelay  = time.Hour
)

// Draw returns the fault of the next attempt. It does not allocate.
func (f *FaultInjector) Draw(r backoff.Rand) Fault {
	if f == nil {
		return Fault{}
	}
	drawn := drawFrom(f.ends, r)
	drawn.Delay = drawFrom(f.delays, r).Delay
	return drawn
}

func drawFrom(list []faultShare, r backoff.Rand) Fault {
	if len(list) == 0 {
		return Fault{}
	}
	n := r.Int64N(wholeShare)
	for i := range list {
		if n -= list[i].share; n < 0 {
			return list[i].Fault
		}
	}
	return Fault{}
}

// String returns f in the syntax of ParseFaultInjection, or "off" for nil.
func (f *FaultInjector) String() string {
	if f == nil {
		return "off"
	}
	return f.text
}

// ParseFaultInjection parses a comma-separated list of
//
//	CODE:P%           a response with that status, 400 to 599
//	reset:P%          the connection is lost
//	delay:TIME:P%     the attempt is sent that much later, more than 0 and at most 1h
//
// where P is above 0 and has up to four decimals. The percentages of statuses and resets add up to at
// most 100, and so do those of delays. "off" returns nil. The error joins all problems.
func ParseFaultInjection(s string) (*FaultInjector, error) {
	if s == "off" {
		return nil, nil
	}
	var errs []error
	f := &FaultInjector{}
	seen := map[Fault]bool{}
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		parts = append(parts, part)
		one, err := parseFault(part)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%q: %w", part, err))
		case seen[one.Fault]:
			errs = append(errs, fmt.Errorf("%q: the same fault is there twice", part))
		case one.Delay > 0:
			f.delays = append(f.delays, one)
		default:
			f.ends = append(f.ends, one)
		}
		seen[one.Fault] = true
	}
	f.text = strings.Join(parts, ",")
	errs = append(errs, withinWhole(f.ends, "statuses and resets"), withinWhole(f.delays, "delays"))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return f, nil
}

func withinWhole(list []faultShare, what string) error {
	sum := int64(0)
	for i := range list {
		sum += list[i].share
	}
	if sum > wholeShare {
		return fmt.Errorf("the percentages of %s add up to %s, which is more than 100%%", what, percentText(sum))
	}
	return nil
}

func percentText(share int64) string {
	return strconv.FormatFloat(float64(share)/onePercent, 'f', -1, 64) + "%"
}

func parseFault(s string) (faultShare, error) {
	what, percent, found := cutLast(s, ":")
	if !found {
		return faultShare{}, errors.New("no percentage")
	}
	f := faultShare{}
	var err error
	if f.Fault, err = parseFaultKind(what); err != nil {
		return faultShare{}, err
	}
	f.share, err = parseShare(percent)
	return f, err
}

// cutLast is like strings.Cut, but cuts at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func parseFaultKind(s string) (Fault, error) {
	if s == "reset" {
		return Fault{Reset: true}, nil
	}
	if d, found := strings.CutPrefix(s, "delay:"); found {
		delay, err := time.ParseDuration(d)
		if err != nil || delay <= 0 || delay > maxFaultDelay {
			return Fault{}, fmt.Errorf("%q is no time above 0 and up to 1h, such as 200ms", d)
		}
		return Fault{Delay: delay}, nil
	}
	code, err := strconv.ParseUint(s, 10, 16)
	switch {
	case err != nil:
		return Fault{}, errors.New("neither a status code, reset nor delay:TIME")
	case code < minFaultStatus || code > maxFaultStatus:
		return Fault{}, fmt.Errorf("status %s is not within %d to %d", s, minFaultStatus, maxFaultStatus)
	}
	return Fault{Status: int(code)}, nil
}

// parseShare parses a percentage such as "12.5%".
func parseShare(s string) (int64, error) {
	number, found := strings.CutSuffix(s, "%")
	whole, fraction, _ := strings.Cut(number, ".")
	if !found || len(fraction) > 4 {
		return 0, fmt.Errorf("%q is no percentage with up to four decimals, such as 10%%", s)
	}
	share, err := strconv.ParseUint(whole+fraction+strings.Repeat("0", 4-len(fraction)), 10, 32)
	if err != nil || share == 0 || share > wholeShare {
		return 0, fmt.Errorf("%q is no percentage above 0 and up to 100", s)
	}
	return int64(share), nil
}

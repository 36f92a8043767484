package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FaultKind is what a made-up fault does to an attempt. Its String is the
// value of the metric label `kind`.
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

var faultKindTexts = [numFaultKinds]text{
	FaultStatus: {"status", "The attempt got a response with a failing status, made here."},
	FaultReset:  {"reset", "The attempt lost its connection after the request was sent."},
	FaultDelay:  {"delay", "The attempt was sent later, as if the upstream took so much longer."},
}

// String is the metric label. A value outside the set gives "invalid".
func (k FaultKind) String() string { return lookup(faultKindTexts[:], int(k)).label }

// Explain is one sentence for a reader of metrics.
func (k FaultKind) Explain() string { return lookup(faultKindTexts[:], int(k)).explain }

// AllFaultKinds lists the set in order. The slice belongs to the client.
func AllFaultKinds() []FaultKind { return sequence[FaultKind](0, numFaultKinds) }

// Fault is what becomes of one attempt; the zero value: nothing. Status and
// Reset exclude each other, Delay comes before either.
type Fault struct {
	Status int           // 400..599: this response, made here; 0: none
	Reset  bool          // the connection is lost after the request was sent
	Delay  time.Duration // 0 or more
}

// Breaks reports that the attempt does not reach the upstream.
func (f Fault) Breaks() bool { return f.Status != 0 || f.Reset }

// FaultInjector are made up for trying policies out: each attempt draws at most one
// status or reset, and besides it at most one delay. Nil draws nothing. Fixed
// after ParseFaultInjection, and safe for concurrent use.
type FaultInjector struct {
	ends   []faultShare // statuses and resets: one draw
	delays []faultShare // another
	text   string
}

// faultShare is a fault and how many attempts of wholeShare draw it.
type faultShare struct {
	Fault
	share int64
}

// wholeShare stands for all attempts: percentages have up to four decimals.
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

// Draw is what becomes of the next attempt. It does not allocate.
func (f *FaultInjector) Draw(r Rand) Fault {
	if f == nil {
		return Fault{}
	}
	drawn := drawFrom(f.ends, r)
	drawn.Delay = drawFrom(f.delays, r).Delay
	return drawn
}

func drawFrom(list []faultShare, r Rand) Fault {
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

// String is f as ParseFaultInjection reads it.
func (f *FaultInjector) String() string {
	if f == nil {
		return "off"
	}
	return f.text
}

// ParseFaultInjection reads a list separated by commas of
//
//	CODE:P%           a response with that status, 400 to 599
//	reset:P%          the connection is lost
//	delay:TIME:P%     the attempt is sent so much later, more than 0 and at most 1h
//
// where P is above 0, with up to four decimals; those of statuses and resets
// add up to at most 100, and so do those of delays. "off" gives nil. The error
// joins all that is wrong.
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

// cutLast is strings.Cut at the last sep.
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

// parseShare reads "12.5%".
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

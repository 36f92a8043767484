package demo

import (
	"math"
	"testing"
	"time"
)

const manyDraws = 50_000

func TestFateIsAFunctionOfTheSeed(t *testing.T) {
	same, different := 0, 0
	for n := range uint64(2000) {
		at := time.Duration(n) * time.Millisecond
		first, again := weather{7}.fate(at, n, 1), weather{7}.fate(at, n, 1)
		if first != again {
			t.Fatalf("request %d: fates %d and %d for one seed", n, first, again)
		}
		if first == (weather{8}).fate(at, n, 1) {
			same++
		} else {
			different++
		}
	}
	if different == 0 {
		t.Errorf("two seeds gave the same %d fates", same)
	}
}

// shares counts the fates of attempt number attempt of many requests, at one moment.
func shares(w weather, at time.Duration, attempt uint64) map[fate]float64 {
	got := map[fate]float64{}
	for n := range uint64(manyDraws) {
		got[w.fate(at, n, attempt)] += 1.0 / manyDraws
	}
	return got
}

func wantShare(t *testing.T, what string, got, want float64) {
	t.Helper()
	if deviation := 6 * math.Sqrt(want*(1-want)/manyDraws); math.Abs(got-want) > deviation {
		t.Errorf("%s: share %.4f, want %.4f", what, got, want)
	}
}

func TestShares(t *testing.T) {
	w := weather{3}
	calm, stormy := moment(w, false), moment(w, true)
	for attempt := uint64(1); attempt <= 3; attempt++ {
		got := shares(w, calm, attempt)
		wantShare(t, "503 outside a burst", got[unavailable], 0)
		wantShare(t, "429", got[throttled], shareThrottled)
		wantShare(t, "cut", got[cut], shareReset)
		wantShare(t, "slow", got[slow], shareSlow)
		wantShare(t, "503 in a burst", shares(w, stormy, attempt)[unavailable], burstShare)
	}
}

// The fate of a retry must be independent. Otherwise retries would never or always succeed.
func TestTheFateOfARepeatDoesNotDependOnTheFirst(t *testing.T) {
	w := weather{3}
	at := moment(w, true)
	first, both := 0.0, 0.0
	for n := range uint64(manyDraws) {
		if w.fate(at, n, 1) != unavailable {
			continue
		}
		first++
		if w.fate(at, n, 2) == unavailable {
			both++
		}
	}
	if got := both / first; math.Abs(got-burstShare) > 0.03 {
		t.Errorf("%.3f of the retries of a 503 were 503, want %.3f", got, burstShare)
	}
}

// moment returns a time inside or outside a burst.
func moment(w weather, inBurst bool) time.Duration {
	at := time.Duration(0)
	for w.burst(at) != inBurst {
		at += time.Millisecond
	}
	return at
}

func TestEveryPeriodHasOneBurstOfTheRightLength(t *testing.T) {
	for seed := range uint64(20) {
		w := weather{seed}
		for period := range time.Duration(10) {
			begin := period * burstEvery
			length, edges, before := time.Duration(0), 0, false
			for at := begin; at < begin+burstEvery; at += time.Millisecond {
				now := w.burst(at)
				if now && !before {
					edges++
				}
				if now {
					length += time.Millisecond
				}
				before = now
			}
			if edges != 1 || length < burstMin || length > burstMax+time.Millisecond {
				t.Errorf("seed %d, period %d: %d bursts of %v in all", seed, period, edges, length)
			}
		}
	}
}

func TestSomeFailButNotMost(t *testing.T) {
	for seed := range uint64(10) {
		failed := 0
		for n := range uint64(1000) { // 20 s at 50 per second
			switch (weather{seed}).fate(time.Duration(n)*20*time.Millisecond, n, 1) {
			case unavailable, throttled, cut:
				failed++
			}
		}
		if failed < 80 || failed > 220 {
			t.Errorf("seed %d: %d of 1000 first attempts fail, want about 140", seed, failed)
		}
	}
}
